package brokertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"hostler/containerbroker"
	kinds "hostler/internal/fault"
)

// WaitReady implements containerbroker.ReadinessProbe. A running instance is
// ready at once. Block delays it, and BreakCloudInit makes its cloud-init fail.
func (f *Fake) WaitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	var ready containerbroker.Readiness
	err := f.work(ctx, WaitReady, m.Name, func(g *fakeInstance) error {
		if g == nil || g.instance.Status != containerbroker.StatusRunning {
			return kinds.New(kinds.Transient, "cannot wait for instance %q: it is not running", m.Name)
		}
		if g.broken != "" {
			return kinds.New(kinds.NeedsOperator, "cloud-init failed in instance %q: %s", m.Name, g.broken)
		}
		progress.Report("ready", m.Name+" is ready", 100)
		ready = containerbroker.Readiness{Addresses: slices.Clone(g.instance.Addresses), CloudInit: "done", Init: "systemd"}
		return nil
	})
	return ready, err
}

// Exec implements containerbroker.GuestAccess with a few commands: true, false,
// echo WORDS, cat, and the scripts of the suite. Any other command exits with
// containerbroker.ExitNotFound.
func (f *Fake) Exec(ctx context.Context, name string, req containerbroker.ExecRequest) (int, error) {
	lost, err := f.enter(ctx, Exec, name)
	if err != nil {
		return -1, err
	}
	if err := f.mustRun("run a command in", name); err != nil {
		return -1, err
	}
	if len(req.Command) == 0 {
		return -1, kinds.New(kinds.Invalid, "cannot run a command in instance %q: it is empty", name)
	}
	stdout, stderr := orDiscard(req.Stdout), orDiscard(req.Stderr)
	code := 0
	switch script := strings.Join(req.Command, " "); {
	case req.Command[0] == "true":
	case req.Command[0] == "false":
		code = 1
	case req.Command[0] == "echo":
		fmt.Fprintln(stdout, strings.Join(req.Command[1:], " "))
	case req.Command[0] == "cat" && len(req.Command) == 1 && req.Stdin != nil:
		_, err = io.Copy(stdout, req.Stdin)
	case script == conformanceScript:
		fmt.Fprintln(stdout, "to stdout")
		fmt.Fprintln(stderr, "to stderr")
		code = 7
	case script == "/bin/sh -c "+TerminalScript && req.Terminal:
		fmt.Fprintf(stdout, "%d %d\r\n", req.Height, req.Width)
		select {
		case size := <-req.Resize:
			fmt.Fprintf(stdout, "%d %d\r\n", size.Height, size.Width)
		case <-ctx.Done():
			err = ctx.Err()
		}
	default:
		fmt.Fprintf(stderr, "%s: not found\n", req.Command[0])
		code = containerbroker.ExitNotFound
	}
	if lost != nil {
		return -1, lost
	}
	return code, err
}

// Console implements containerbroker.GuestAccess. It echoes its input until
// conn ends.
func (f *Fake) Console(ctx context.Context, name string, conn io.ReadWriter) error {
	if _, err := f.enter(ctx, Console, name); err != nil {
		return err
	}
	if err := f.mustRun("open the console of", name); err != nil {
		return err
	}
	_, err := io.Copy(conn, conn)
	return err
}

// Log implements containerbroker.GuestAccess.
func (f *Fake) Log(ctx context.Context, name string) (io.ReadCloser, error) {
	if _, err := f.enter(ctx, Log, name); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.instances[name]
	if g == nil {
		return nil, kinds.New(kinds.NotFound, "cannot read the console log of instance %q: it does not exist", name)
	}
	return io.NopCloser(strings.NewReader(g.console)), nil
}

func (f *Fake) mustRun(what, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.instances[name]
	if g == nil {
		return kinds.New(kinds.NotFound, "cannot %s instance %q: it does not exist", what, name)
	}
	if g.instance.Status != containerbroker.StatusRunning {
		return kinds.New(kinds.NotReady, "cannot %s instance %q: it is not running", what, name)
	}
	return nil
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// fetch is a running fetch of an image. Several callers of EnsureImage() may
// wait for it.
type fetch struct {
	done chan struct{}
	id   string
	err  error
}

// AddImage adds an image, sends an event, and returns the image's id.
func (f *Fake) AddImage(ref string, ours bool) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.publish("", "image-created")
	return f.addImage(ref, ours)
}

func (f *Fake) addImage(ref string, ours bool) string {
	sum := sha256.Sum256([]byte(ref))
	id := hex.EncodeToString(sum[:])
	f.images[id] = &containerbroker.HypervisorImage{ID: id, Aliases: []string{ref}, Size: 1 << 20, Created: f.Now(), Ours: ours, Reference: ref}
	return id
}

// NoImage makes EnsureImage() of a reference fail with fault.NotFound.
func (f *Fake) NoImage(ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing[ref] = true
}

// EnsureImage implements containerbroker.ImageStore. A fault applies once for
// each fetch, not once for each caller.
func (f *Fake) EnsureImage(ctx context.Context, ref string, progress containerbroker.Progress) (string, error) {
	f.mu.Lock()
	for id, image := range f.images {
		if image.Reference == ref {
			f.calls[EnsureImage]++
			f.mu.Unlock()
			return id, nil
		}
	}
	running := f.fetches[ref]
	if running == nil {
		running = &fetch{done: make(chan struct{})}
		f.fetches[ref] = running
		go f.fetch(ref, running, progress)
	} else {
		f.calls[EnsureImage]++
	}
	f.mu.Unlock()
	select {
	case <-running.done:
		return running.id, running.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (f *Fake) fetch(ref string, x *fetch, progress containerbroker.Progress) {
	progress.Report("image", "fetching "+ref, 0)
	lost, err := f.enter(context.Background(), EnsureImage, ref)
	f.mu.Lock()
	switch {
	case err != nil:
		x.err = err
	case f.missing[ref]:
		x.err = kinds.New(kinds.NotFound, "cannot find image %q: no source has it", ref)
	default:
		x.id = f.addImage(ref, true)
		x.err = lost
		f.note("fetch %s", ref)
	}
	delete(f.fetches, ref)
	f.mu.Unlock()
	progress.Report("image", "fetching "+ref, 100)
	close(x.done)
}

// ListImages implements containerbroker.ImageStore.
func (f *Fake) ListImages(ctx context.Context) ([]containerbroker.HypervisorImage, error) {
	if _, err := f.enter(ctx, ListImages, ""); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []containerbroker.HypervisorImage
	for _, id := range slices.Sorted(maps.Keys(f.images)) {
		image := *f.images[id]
		image.Aliases = slices.Clone(image.Aliases)
		image.UsedBy = f.imageUsers(id)
		all = append(all, image)
	}
	return all, nil
}

// DeleteImage implements containerbroker.ImageStore.
func (f *Fake) DeleteImage(ctx context.Context, id string) error {
	return f.work(ctx, DeleteImage, id, func(_ *fakeInstance) error {
		image := f.images[id]
		if image == nil {
			return nil
		}
		if !image.Ours {
			return kinds.New(kinds.Conflict, "cannot delete image %s: it was not made by hostler", id)
		}
		if users := f.imageUsers(id); len(users) > 0 {
			return kinds.New(kinds.Conflict, "cannot delete image %s: it is used by %s", id, strings.Join(users, ", "))
		}
		delete(f.images, id)
		f.note("delete-image %s", id)
		return nil
	})
}

// imageUsers returns the names of the instances made from an image, sorted.
func (f *Fake) imageUsers(id string) []string {
	var users []string
	for name, g := range f.instances {
		if g.instance.ImageID == id {
			users = append(users, name)
		}
	}
	slices.Sort(users)
	return users
}
