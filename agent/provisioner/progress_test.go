package provisioner_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/containerbroker/brokertest"
)

// P42: the status shows each phase of an operation while it lasts.
func TestStatusShowsEachPhaseOfAnOperation(t *testing.T) {
	r := newRig(t)
	r.declare("web")
	parts := []struct {
		method brokertest.Method
		told   string
	}{
		{brokertest.EnsureImage, "debian/12"},
		{brokertest.Create, "creating"},
		{brokertest.WaitReady, "booting"},
	}
	var release []func()
	for _, part := range parts {
		release = append(release, r.fake.Block(part.method, ""))
	}
	r.start()
	for i, part := range parts {
		r.eventually(part.told, func() bool {
			s, _ := r.status("web")
			return r.fake.Calls(part.method) == 1 && s.State == spec.MachineProvisioning && strings.Contains(s.Message, part.told)
		})
		release[i]()
	}
	if s := r.awaitState("web", spec.MachineRunning); s.Message != "" || s.Percent != nil {
		t.Errorf("status %+v", s)
	}
}

// P36 P37: a retry waits for the configured time, and the status gives the
// delay and the number of retries left.
func TestRetriesWaitForTheirDelay(t *testing.T) {
	r := newRig(t)
	r.config.RetryDelay, r.config.StartRetries = time.Hour, 7
	r.fake.Fail(brokertest.Create, "web", 1, errors.New("not now"))
	r.declare("web")
	began := time.Now()
	r.start()
	var s spec.MachineStatus
	r.eventually("a failed attempt", func() bool { s, _ = r.status("web"); return s.Attempts.Count == 1 })
	r.awaitPass()
	next := s.Attempts.NextRetry
	if next == nil || next.Before(began.Add(time.Hour)) || next.After(time.Now().Add(75*time.Minute)) {
		t.Errorf("next retry %v", next)
	}
	r.eventually("the event", func() bool {
		events, err := r.store.Events(t.Context(), state.EventQuery{Object: &state.ID{Kind: spec.KindMachine, Name: "web"}})
		return err == nil && slices.ContainsFunc(events, func(e state.Event) bool {
			return strings.HasSuffix(e.Message, "not now") && e.Attempt == 1 && e.Limit == 7 && e.NextRetry != nil && e.NextRetry.Equal(*next)
		})
	})
	if !strings.Contains(s.Message, "not now") || !strings.Contains(s.Message, "retry 1 of 7 in 1h") || r.fake.Calls(brokertest.Create) != 1 {
		t.Errorf("message %q after %d creates", s.Message, r.fake.Calls(brokertest.Create))
	}
}
