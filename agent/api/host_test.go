package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/plan"
)

// standIn is a fake host with instances and images. It implements only the
// behaviour that the API can observe.
type standIn struct {
	mu        sync.Mutex
	instances map[string]string // name → machine uid, "" for a foreign one
	images    map[string]client.Image
	logs      map[string]string
	notices   []string
	// hold makes every changed machine wait for consent.
	hold string
	// refuses is the name of an object for which the host has no room.
	refuses string
	// execute runs exec and console; nil: an echo.
	execute func(context.Context, GuestExec) (int, error)
	// panics makes the planner panic, unseen makes it fail, frozen makes it hang.
	panics, frozen bool
	unseen         error
	// armed is the object of the armed change, client the address of its user.
	armed  string
	client netip.Addr
	// execs counts the running commands.
	execs int
}

func newStandIn() *standIn {
	return &standIn{instances: map[string]string{}, images: map[string]client.Image{}, logs: map[string]string{}}
}

func (h *standIn) service() Service {
	return Service{Planner: h, Guests: h, Images: imagesOf{h}, Builder: h, Host: h, Adopter: h, Exporter: h, Guard: h}
}

// Confirm implements Guard.
func (h *standIn) Confirm(context.Context) (string, error) { return h.guard() }

// Revert implements Guard.
func (h *standIn) Revert(context.Context) (string, error) { return h.guard() }

func (h *standIn) guard() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed == "" {
		return "", fault.New(fault.NotFound, "nothing waits to be confirmed")
	}
	return h.armed, nil
}

// Remember implements Guard.
func (h *standIn) Remember(client netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.client = client
}

// Plan compares the declared machines with the existing instances.
func (h *standIn) Plan(ctx context.Context, machines []declare.Planned, _ map[string]bool) ([]client.Step, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.panics {
		panic("the planner is broken")
	}
	if h.frozen {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if h.unseen != nil {
		return nil, h.unseen
	}
	var steps []client.Step
	for _, m := range machines {
		var rec spec.MachineRecord
		if err := m.After.Decode(&rec, nil); err != nil {
			return nil, err
		}
		st := client.Step{Object: "machine/" + m.After.Name}
		_, there := h.instances[m.After.Name]
		switch {
		case m.After.Life != state.Alive && there && rec.Released:
			st.Action, st.Impact = "release", "none"
		case m.After.Life != state.Alive && there:
			st.Action, st.Impact = "delete", "destroy"
		case m.After.Life == state.Alive && !there:
			st.Action, st.Impact = "create", "none"
		case m.Before != nil && m.Before.Generation != m.After.Generation:
			st.Action, st.Impact = "update", "live"
			if h.hold != "" && !slices.Contains(rec.Allow, h.hold) {
				st.Impact, st.Held, st.Allow = plan.Impact(h.hold), "--allow "+h.hold, plan.Impact(h.hold)
			}
		default:
			continue
		}
		steps = append(steps, st)
	}
	return steps, nil
}

// Refuse refuses the object named in h.refuses.
func (h *standIn) Refuse(_ context.Context, objects []declare.Planned) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range objects {
		if o.After.Name == h.refuses {
			return fault.New(fault.Conflict, "%s/%s cannot be on this host", o.After.Kind, o.After.Name)
		}
	}
	return nil
}

func (h *standIn) Exec(ctx context.Context, _ spec.ContainerType, _ string, e GuestExec) (int, error) {
	h.mu.Lock()
	run := h.execute
	h.execs++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.execs--
		h.mu.Unlock()
	}()
	if run != nil {
		return run(ctx, e)
	}
	_, err := io.Copy(e.Stdout, e.Stdin)
	return 0, err
}

func (h *standIn) running() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.execs
}

func (h *standIn) Console(ctx context.Context, t spec.ContainerType, instance string, conn io.ReadWriter) error {
	_, err := h.Exec(ctx, t, instance, GuestExec{Stdin: conn, Stdout: conn})
	return err
}

func (h *standIn) Log(_ context.Context, _ spec.ContainerType, instance string) (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return io.NopCloser(strings.NewReader(h.logs[instance])), nil
}

// imagesOf provides the image methods under names of their own.
type imagesOf struct{ *standIn }

func (h imagesOf) List(context.Context) ([]client.Image, []string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []client.Image
	for _, i := range h.images {
		all = append(all, i)
	}
	return all, h.notices, nil
}

func (h imagesOf) Available(context.Context) []client.AvailableImage {
	return []client.AvailableImage{}
}

func (h imagesOf) Delete(_ context.Context, ref string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.images[ref]; !ok {
		return fault.New(fault.NotFound, "image %s is not there", ref)
	}
	delete(h.images, ref)
	return nil
}

func (h *standIn) Import(_ context.Context, path, ref, digest string, progress func(client.Progress)) (client.Image, error) {
	progress(client.Progress{Message: "reading " + path, Percent: 50})
	return h.keep(client.Image{Reference: ref, Digest: digest})
}

func (h *standIn) Build(_ context.Context, t spec.ContainerType, ref string, progress func(client.Progress)) (client.Image, error) {
	if strings.HasPrefix(ref, "bad") {
		return client.Image{}, fault.New(fault.NeedsOperator, "cannot build %s: there is no such release", ref)
	}
	progress(client.Progress{Message: "building " + ref, Percent: -1})
	return h.keep(client.Image{Reference: ref, Digest: "00", Format: string(t)})
}

func (h *standIn) Ensure(_ context.Context, t spec.ContainerType, ref string, progress func(client.Progress)) (string, error) {
	if strings.HasPrefix(ref, "bad") {
		return "", fault.New(fault.NotFound, "no source has %s", ref)
	}
	progress(client.Progress{Message: "giving " + ref + " to " + string(t), Percent: 50})
	return "id-of-" + ref, nil
}

func (h *standIn) keep(i client.Image) (client.Image, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.images[i.Reference] = i
	return i, nil
}

func (h *standIn) Report(context.Context) (HostReport, error) {
	return HostReport{Harvest: "destroyed", Notices: h.notices}, nil
}

func (h *standIn) BlockDevices(context.Context) ([]client.BlockDevice, error) { return nil, nil }

func (h *standIn) Doctor(context.Context) ([]client.Check, error) {
	return []client.Check{{Name: "lxd", Result: "ok", Message: "LXD answers"}}, nil
}

func (h *standIn) Inspect(_ context.Context, t spec.ContainerType, instance string) (Adoptable, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.instances[instance]; !ok {
		return Adoptable{}, fault.New(fault.NotFound, "there is no instance %s/%s", t, instance)
	}
	return Adoptable{Name: instance, Machine: spec.Machine{Type: t, Image: "lxd:found"}}, nil
}

func (h *standIn) Stamp(_ context.Context, _ spec.ContainerType, found Adoptable, machine state.Object) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if uid := h.instances[found.Name]; uid != "" && uid != machine.UID {
		return fault.New(fault.Conflict, "instance %s bears another stamp", found.Name)
	}
	h.instances[found.Name] = machine.UID
	return nil
}

func (h *standIn) Export(context.Context, string) ([]byte, []string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b bytes.Buffer
	fmt.Fprintf(&b, "version: 1 # %d instances\n", len(h.instances))
	return b.Bytes(), h.notices, nil
}
