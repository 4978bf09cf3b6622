package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// errOver ends a watch whose film has ended: the test fails with this error
// instead of hanging.
var errOver = errors.New("the stand-in has no more to show")

// standIn is an agent that holds its state in memory.
type standIn struct {
	machines     []client.Machine
	declarations []client.Declaration
	images       []client.Image
	notices      []string                 // the missing parts of the images or the export
	objects      map[string]client.Object // KIND/NAME
	rows         map[string]string        // JSON of the kinds without a Go type
	events       []client.Event
	status       client.Status
	folder       []client.FolderState // the states of conf.d that a watch shows; empty means read
	checks       []client.Check
	harvest      client.Harvest
	// film holds the sets of machines that a watch shows after the present
	// machines. The watch breaks once, after as many sets as lost says. rowFilm
	// holds the rows of other kinds that it shows then.
	film    [][]client.Machine
	lost    int
	rowFilm []struct{ kind, rows string }
	freeze  bool // the end of the film blocks instead of failing
	mute    bool // Get gives no answer
	plan    client.Plan
	applied bool
	late    int
	guarded string // the object with an armed change
	// err answers every call.
	err error
	log []string
	// exit, output and input belong to exec and console.
	exit   int
	output string
	input  []byte
	exec   client.ExecOptions
}

func (s *standIn) did(format string, args ...any) error {
	s.log = append(s.log, fmt.Sprintf(format, args...))
	return s.err
}

func (s *standIn) find(name string) (client.Machine, error) {
	if s.err != nil {
		return client.Machine{}, s.err
	}
	for _, m := range s.machines {
		if m.Name == name {
			return m, nil
		}
	}
	return client.Machine{}, fault.New(fault.NotFound, "there is no machine %q", name)
}

func (s *standIn) Machines(_ context.Context, names ...string) ([]client.Machine, error) {
	if err := s.did("machines %v", names); err != nil || len(names) == 0 {
		return s.machines, err
	}
	var out []client.Machine
	for _, n := range names {
		m, err := s.find(n)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func (s *standIn) Declarations(context.Context) ([]client.Declaration, error) {
	return s.declarations, s.did("declarations")
}

func (s *standIn) Images(context.Context) ([]client.Image, []string, error) {
	return s.images, s.notices, s.did("images")
}

func (s *standIn) Get(ctx context.Context, kind string) (json.RawMessage, error) {
	if s.mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	rows := s.rows[kind]
	if rows == "" {
		rows = "[]"
	}
	return json.RawMessage(rows), s.did("get %s", kind)
}

func (s *standIn) Show(_ context.Context, kind, name string) (client.Object, error) {
	if err := s.did("show %s/%s", kind, name); err != nil {
		return client.Object{}, err
	}
	if o, ok := s.objects[kind+"/"+name]; ok {
		return o, nil
	}
	return client.Object{}, fault.New(fault.NotFound, "there is no %s %q", kind, name)
}

func (s *standIn) Events(_ context.Context, after int64, object string, limit int) ([]client.Event, error) {
	var out []client.Event
	for _, e := range s.events {
		if e.Seq > after && (object == "" || e.Object == object) && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, s.did("events after %d", after)
}

// Plan returns no steps after an accepted apply, except in the first calls,
// whose number is late.
func (s *standIn) Plan(_ context.Context, req client.ApplyRequest) (client.Plan, error) {
	p, err := s.judge("plan", req)
	if s.applied {
		if s.late--; s.late < 0 {
			p.Steps = nil
		}
	}
	return p, err
}

func (s *standIn) Apply(_ context.Context, req client.ApplyRequest) (client.Plan, error) {
	p, err := s.judge("apply", req)
	s.applied = err == nil
	return p, err
}

// judge refuses wrong documents with the spec's errors, like the agent.
func (s *standIn) judge(what string, req client.ApplyRequest) (client.Plan, error) {
	var names []string
	for _, d := range req.Documents {
		if _, _, err := spec.ParseAlone(d.Name, []byte(d.Content)); err != nil {
			return client.Plan{}, err
		}
		names = append(names, d.Name)
	}
	return s.plan, s.did("%s %v allow %v dry-run %v", what, names, req.Allow, req.DryRun)
}

func (s *standIn) Confirm(context.Context) (string, error) { return s.guarded, s.guard("confirm") }

func (s *standIn) Revert(context.Context) (string, error) { return s.guarded, s.guard("revert") }

func (s *standIn) guard(what string) error {
	if err := s.did("%s", what); err != nil {
		return err
	}
	if s.guarded == "" {
		return fault.New(fault.NotFound, "no change of the host's network waits to be confirmed")
	}
	return nil
}

func (s *standIn) Delete(_ context.Context, objects []string) ([]client.Outcome, error) {
	var out []client.Outcome
	for _, o := range objects {
		_, known := s.objects[o]
		r := client.Outcome{Object: o}
		if !known {
			r.Error, r.Kind = "there is no "+o, fault.NotFound
		}
		out = append(out, r)
	}
	return out, s.did("delete %v", objects)
}

func (s *standIn) Allow(_ context.Context, impact string, objects []string) ([]client.Outcome, error) {
	var out []client.Outcome
	for _, o := range objects {
		_, known := s.objects[o]
		r := client.Outcome{Object: o}
		if !known {
			r.Error, r.Kind = "there is no "+o, fault.NotFound
		}
		out = append(out, r)
	}
	return out, s.did("allow %s %v", impact, objects)
}

func (s *standIn) Export(context.Context, string) ([]byte, []string, error) {
	return []byte("version: 1\nmachines: {}\n"), s.notices, s.did("export")
}

func (s *standIn) WatchEvents(_ context.Context, after int64, object string, fn func(client.Event) error) error {
	if err := fn(client.Event{Seq: after + 1, Time: noon, Object: "machine/web", Level: "info", Reason: "Started", Message: "started again"}); err != nil {
		return err
	}
	if err := s.did("watch events after %d of %q", after, object); err != nil || s.lost == 0 {
		return errOver
	}
	s.lost--
	return fault.New(fault.Transient, "lost the agent's answer")
}

func (s *standIn) WatchFolder(ctx context.Context, fn func(client.FolderState) error) error {
	if err := s.did("watch folder"); err != nil {
		return err
	}
	states := s.folder
	if len(states) == 0 {
		states = []client.FolderState{{Path: "/etc/hostler/conf.d", Read: true}}
	}
	for _, f := range states {
		if err := fn(f); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *standIn) Power(_ context.Context, machine, action string) error {
	if _, err := s.find(machine); err != nil {
		return err
	}
	return s.did("%s %s", action, machine)
}

func (s *standIn) Retry(_ context.Context, object string, _ bool) error {
	if name, ok := strings.CutPrefix(object, "machine/"); ok {
		if _, err := s.find(name); err != nil {
			return err
		}
	}
	return s.did("retry %s", object)
}

func (s *standIn) ResizeVolume(_ context.Context, name, size string) error {
	return s.did("resize %s %s", name, size)
}

func (s *standIn) Adopt(_ context.Context, containerType, instance string) (client.Machine, error) {
	return client.Machine{Name: instance, Declaration: instance}, s.did("adopt %s/%s", containerType, instance)
}

func (s *standIn) AdoptHost(context.Context) error { return s.did("adopt host") }

func (s *standIn) Release(_ context.Context, machine string) error {
	if _, err := s.find(machine); err != nil {
		return err
	}
	return s.did("release %s", machine)
}

func (s *standIn) Migrate(_ context.Context, from, to string, machines []string, dryRun bool) ([]client.MigrationStep, error) {
	var steps []client.MigrationStep
	for i, m := range s.machines {
		step := client.MigrationStep{Machine: m.Name, UID: m.UID, Detail: "stopped during the copy, then started in " + to}
		if i%2 == 1 {
			step.Refused = "it is of type incus"
		}
		steps = append(steps, step)
	}
	return steps, s.did("migrate %s %s %v %v", from, to, machines, dryRun)
}

func (s *standIn) Status(context.Context) (client.Status, error) { return s.status, s.did("status") }
func (s *standIn) Doctor(context.Context) ([]client.Check, error) {
	return s.checks, s.did("doctor")
}

func (s *standIn) Version(context.Context) (client.Version, error) {
	return client.Version{Version: "1.2.3", Namespace: "hostler", PID: 42}, s.did("version")
}

func (s *standIn) Harvest(context.Context) (client.Harvest, error) {
	return s.harvest, s.did("harvest")
}

func (s *standIn) SetHarvest(_ context.Context, mode string) (client.Harvest, error) {
	s.harvest.Override, s.harvest.Mode = mode, mode
	if mode == "" {
		s.harvest.Mode = s.harvest.Configured
	}
	return s.harvest, s.did("set harvest %q", mode)
}

func (s *standIn) Exec(_ context.Context, machine string, o client.ExecOptions) (int, error) {
	if _, err := s.find(machine); err != nil {
		return 0, err
	}
	s.exec = o
	if o.Stdin != nil {
		s.input, _ = io.ReadAll(o.Stdin)
	}
	_, _ = io.WriteString(o.Stdout, s.output)
	return s.exit, s.did("exec %s %q terminal %v", machine, o.Command, o.Terminal)
}

func (s *standIn) Console(ctx context.Context, machine string, rw io.ReadWriter) error {
	if _, err := s.find(machine); err != nil {
		return err
	}
	s.input, _ = io.ReadAll(rw)
	_ = s.did("console %s", machine)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.err
}

func (s *standIn) Logs(_ context.Context, machine string, o client.LogOptions) (io.ReadCloser, error) {
	if _, err := s.find(machine); err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader(s.output)), s.did("logs %s%s", machine, logWords(o))
}

func (s *standIn) ImageImport(_ context.Context, path, reference, digest string, progress func(string, int)) (client.Image, error) {
	progress("reading", 50)
	return client.Image{Reference: reference, Size: 3 << 20, Digest: strings.Repeat("ab", 32)}, s.did("import %s %s %s", path, reference, digest)
}

func (s *standIn) ImageBuild(_ context.Context, reference string, t spec.ContainerType, progress func(string, int)) (client.Image, error) {
	progress("installing packages", -1)
	progress("packing", 90)
	format := map[spec.ContainerType]string{spec.LXD: "lxd", spec.KVM: "disk"}[t]
	return client.Image{Reference: reference, Format: format, Size: 90 << 20, Digest: strings.Repeat("cd", 32)}, s.did("build %s for %s", reference, t)
}

func (s *standIn) ImageDelete(_ context.Context, reference string) error {
	for _, i := range s.images {
		if i.Reference == reference {
			return s.did("delete image %s", reference)
		}
	}
	return fault.New(fault.NotFound, "there is no image %q", reference)
}

// noon is the present time in every test.
var noon = time.Date(2020, 1, 2, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *time.Time { t := noon.Add(-d); return &t }
func after(d time.Duration) *time.Time  { t := noon.Add(d); return &t }

func logWords(o client.LogOptions) string {
	words := ""
	if o.Tail >= 0 {
		words += fmt.Sprint(" tail ", o.Tail)
	}
	if o.Follow {
		words += " follow"
	}
	return words
}
