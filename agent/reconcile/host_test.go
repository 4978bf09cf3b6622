package reconcile

import (
	"context"
	"log/slog"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/hosttest"
)

// racing is a store in which another writer comes first, as often as set.
type racing struct {
	state.Backend
	races int
}

func (s *racing) Write(ctx context.Context, m state.Mode, writes ...state.Write) ([]state.Result, error) {
	if s.races > 0 {
		s.races--
		other := Host{Store: s.Backend}
		if err := other.Update(ctx, func(r *spec.HostRecord, _ *spec.HostStatus) { r.Harvest += "x" }); err != nil {
			return nil, err
		}
	}
	return s.Backend.Write(ctx, m, writes...)
}

// Update creates the host's object, keeps what others wrote meanwhile, and
// writes nothing that is as before.
func TestHostUpdate(t *testing.T) {
	local, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	store := &racing{Backend: local, races: 3}
	h := Host{Store: store}
	note := func(_ *spec.HostRecord, s *spec.HostStatus) { s.ConfDevice = "8:1" }
	if err := h.Update(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	record, status, first, err := h.Read(t.Context())
	if err != nil || record.Harvest != "xxx" || status.ConfDevice != "8:1" {
		t.Errorf("%+v, %+v, %v", record, status, err)
	}
	if err := h.Update(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	if _, _, again, err := h.Read(t.Context()); err != nil || again != first {
		t.Errorf("revision %d, then %d, %v", first, again, err)
	}
	store.races = 5
	if err := h.Update(t.Context(), func(_ *spec.HostRecord, s *spec.HostStatus) { s.ConfDevice = "8:2" }); err == nil {
		t.Error("five conflicts in a row are no error")
	}
}

// step is a step of a plan.
type step struct {
	destroys bool
	waits    string
}

func (s *step) Destroys() bool  { return s.destroys }
func (s *step) Wait(why string) { s.waits = why }

func TestWithhold(t *testing.T) {
	steps := []step{{destroys: true}, {}}
	if got := Withhold("", steps); got[0].waits != "" {
		t.Errorf("%+v", got)
	}
	if got := Withhold("lxd", steps); got[0].waits != "lxd" || got[1].waits != "" {
		t.Errorf("%+v", got)
	}
}
