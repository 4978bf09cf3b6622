package brokertest

import (
	"sync"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	kinds "hostler/internal/fault"
)

func (s *suite) listShowsAll(t *testing.T) {
	stopped, running := s.created(t), s.running(t)
	s.AddForeign(t, "conform-stranger")
	all, err := s.Broker.List(t.Context(), false)
	must(t, err)
	seen := map[string]containerbroker.Instance{}
	for _, i := range all {
		seen[i.Name] = i
		if i.PID != 0 || i.Addresses != nil {
			t.Errorf("%s: detail was not asked for", i.Name)
		}
	}
	wantStatus(t, seen[stopped.Name], containerbroker.StatusStopped)
	wantStatus(t, seen[running.Name], containerbroker.StatusRunning)
	if i, ok := seen["conform-stranger"]; !ok || i.Stamp != nil {
		t.Errorf("the foreign instance: %+v, listed %v", i, ok)
	}
	i := s.get(t, running.Name)
	if i.PID == 0 {
		t.Error("detail names no process")
	}
	if i.Started.IsZero() != seen[running.Name].Started.IsZero() {
		t.Errorf("started %s in detail, else %s", i.Started, seen[running.Name].Started)
	}
}

func (s *suite) listAllOrError(t *testing.T) {
	s.created(t)
	s.BreakList(t)
	all, err := s.Broker.List(t.Context(), true)
	if err == nil || len(all) != 0 {
		t.Errorf("a listing that broke gave %d instances and error %v", len(all), err)
	}
	if all, err = s.Broker.List(t.Context(), true); err != nil || len(all) == 0 {
		t.Errorf("the next one: %d instances, %v", len(all), err)
	}
}

func (s *suite) power(t *testing.T) {
	m := s.created(t)
	set := func(to containerbroker.Power, timeout time.Duration) containerbroker.Instance {
		t.Helper()
		must(t, s.Broker.SetPower(t.Context(), m.Name, to, timeout))
		return s.get(t, m.Name)
	}
	first := set(containerbroker.PowerStart, 0)
	wantStatus(t, first, containerbroker.StatusRunning)
	if again := set(containerbroker.PowerStart, 0); again.PID != first.PID {
		t.Error("starting a running instance gave it another process")
	}
	ready := func() { // an init that has just started ignores a request to stop
		if probe, ok := s.Broker.(containerbroker.ReadinessProbe); ok && !s.Virtual {
			_, err := probe.WaitReady(t.Context(), m, nil)
			must(t, err)
		}
	}
	ready()
	restarted := set(containerbroker.PowerRestart, waitLimit)
	wantStatus(t, restarted, containerbroker.StatusRunning)
	if restarted.PID == first.PID {
		t.Error("a restart kept the process")
	}
	ready()
	wantStatus(t, set(containerbroker.PowerStop, waitLimit), containerbroker.StatusStopped)
	wantStatus(t, set(containerbroker.PowerStop, 0), containerbroker.StatusStopped)
	wantStatus(t, set(containerbroker.PowerStart, 0), containerbroker.StatusRunning)
	wantStatus(t, set(containerbroker.PowerStop, 0), containerbroker.StatusStopped)

	const absent = "conform-absent"
	must(t, s.Broker.SetPower(t.Context(), absent, containerbroker.PowerStop, waitLimit))
	wantKind(t, s.Broker.SetPower(t.Context(), absent, containerbroker.PowerStart, 0), kinds.NotFound)
	wantKind(t, s.Broker.SetPower(t.Context(), absent, containerbroker.PowerRestart, 0), kinds.NotFound)
}

func (s *suite) deleteAny(t *testing.T) {
	gone := func(t *testing.T, m containerbroker.Machine) {
		t.Helper()
		for range 2 { // absent is success
			must(t, s.Broker.Delete(t.Context(), m.Name, m.Stamp))
		}
		if s.find(t, m.Name) != nil {
			t.Errorf("%s is still there", m.Name)
		}
	}
	t.Run("stopped", func(t *testing.T) { gone(t, s.created(t)) })
	t.Run("running", func(t *testing.T) { gone(t, s.running(t)) })
	t.Run("half-made", func(t *testing.T) {
		m := s.created(t)
		s.Halve(t, m.Name)
		gone(t, m)
	})
	t.Run("by many at once", func(t *testing.T) {
		m := s.running(t)
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() {
				if err := s.Broker.Delete(t.Context(), m.Name, m.Stamp); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		gone(t, m)
	})
}

func (s *suite) deleteOther(t *testing.T) {
	m := s.running(t)
	pid := s.get(t, m.Name).PID
	for _, stamp := range []containerbroker.Stamp{
		{Namespace: s.OtherNamespace, UID: m.Stamp.UID, Token: m.Stamp.Token},
		{Namespace: m.Stamp.Namespace, UID: "another", Token: m.Stamp.Token},
		{Namespace: m.Stamp.Namespace, UID: m.Stamp.UID, Token: "another"}, // adopted since
		{},
	} {
		wantKind(t, s.Broker.Delete(t.Context(), m.Name, stamp), kinds.Conflict)
	}
	s.AddForeign(t, "conform-theirs")
	wantKind(t, s.Broker.Delete(t.Context(), "conform-theirs", m.Stamp), kinds.Conflict)
	s.get(t, "conform-theirs")
	if i := s.get(t, m.Name); i.PID != pid {
		t.Error("a refused delete stopped the instance")
	}
}

// userDataStays checks that changed user-data needs a new instance, unless the
// first boot is to run again.
func (s *suite) userDataStays(t *testing.T) {
	m := s.created(t)
	m.Guest = cloudinit.Input{UserData: "#cloud-config\n{}\n"}
	changes := s.diff(t, m)
	if len(changes) != 1 || changes[0].Field != containerbroker.FieldUserData || changes[0].Impact != containerbroker.ImpactRecreate {
		t.Fatalf("changed user-data: %+v", changes)
	}
	wantKind(t, s.Broker.Update(t.Context(), m, changes), kinds.Invalid)
	m.RerunFirstBoot = true
	if changes = s.diff(t, m); len(changes) != 1 || changes[0].Impact != containerbroker.ImpactRestart {
		t.Fatalf("changed user-data, to be run again: %+v", changes)
	}
	must(t, s.Broker.Update(t.Context(), m, changes))
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("it still differs: %+v", changes)
	}
}

// proxyUsersStay checks that a guest is not recreated because an earlier
// version gave it the password of a proxy, which guests no longer get.
func (s *suite) proxyUsersStay(t *testing.T) {
	m := s.machine(t)
	m.Guest = cloudinit.Input{HTTPProxy: "http://me:secret@127.0.0.1:3128", AptProxy: "http://me:secret@127.0.0.1:3142"}
	must(t, s.Broker.Create(t.Context(), m, nil))
	m.Guest = cloudinit.Input{HTTPProxy: "http://127.0.0.1:3128", AptProxy: "http://127.0.0.1:3142"}
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("a proxy without its password: %+v", changes)
	}
	m.Guest.HTTPProxy = "http://127.0.0.1:8080"
	if changes := s.diff(t, m); len(changes) != 1 || changes[0].Field != containerbroker.FieldUserData {
		t.Errorf("another proxy: %+v", changes)
	}
}

func (s *suite) updateLive(t *testing.T) {
	m := s.up(t)
	pid := s.get(t, m.Name).PID
	m.CPUs, m.Memory, m.RootDisk, m.Autostart = 2, 256<<20, s.rootDisk(), false
	if s.Virtual {
		m.Memory = 512 << 20 // less memory, because more would come only at the next start
	}
	m.Stamp.Record, m.Stamp.Store = `{"changed": true}`, "store-1 opening-2 9"
	changes := s.diff(t, m)
	want := []string{"autostart", "cpus", "memory", "record", "root-disk"}
	if len(changes) != len(want) {
		t.Fatalf("changes: %+v", changes)
	}
	for i, c := range changes {
		if c.Field != want[i] || c.Impact != containerbroker.ImpactLive {
			t.Errorf("change %d: %+v, want %s live", i, c, want[i])
		}
	}
	for range 2 { // a repeated update is success
		must(t, s.Broker.Update(t.Context(), m, changes))
	}
	i := s.get(t, m.Name)
	if i.PID != pid {
		t.Error("a live update restarted the instance")
	}
	if i.CPUs != 2 || i.Memory != m.Memory || i.RootDisk != m.RootDisk && !i.RootUnlimited || i.Autostart {
		t.Errorf("updated to %+v", i)
	}
	if *i.Stamp != m.Stamp {
		t.Errorf("stamp %+v", i.Stamp)
	}
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("it still differs: %+v", changes)
	}
	m.CPUs, m.Memory = 0, 0
	must(t, s.Broker.Update(t.Context(), m, s.diff(t, m)))
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("without limits it still differs: %+v", changes)
	}
	// Changes that a running instance cannot take wait for its next start.
	m.Privileged = !s.Virtual
	if s.Virtual {
		m.Memory = 1 << 30
	}
	changes = s.diff(t, m)
	if containerbroker.Worst(changes) != containerbroker.ImpactRestart || changes[0].Reason == "" {
		t.Errorf("to take effect at the next start: %+v", changes)
	}
	must(t, s.Broker.Update(t.Context(), m, changes))
	if i := s.get(t, m.Name); i.PID != pid || i.Privileged != m.Privileged {
		t.Errorf("to take effect at the next start: %+v", i)
	}
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerRestart, waitLimit))
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("after the restart it differs: %+v", changes)
	}
}

func (s *suite) updateRefuses(t *testing.T) {
	m := s.created(t)
	cpus := []containerbroker.Change{{Field: containerbroker.FieldCPUs}}
	other := m
	other.Stamp.UID, other.CPUs = "another", 2
	wantKind(t, s.Broker.Update(t.Context(), other, cpus), kinds.Conflict)
	other = m
	other.Name, other.CPUs = "conform-absent", 2
	wantKind(t, s.Broker.Update(t.Context(), other, cpus), kinds.NotFound)
	other = m
	other.ImageID = "another"
	changes := s.diff(t, other)
	if containerbroker.Worst(changes) != containerbroker.ImpactRecreate {
		t.Errorf("another image: %+v", changes)
	}
	wantKind(t, s.Broker.Update(t.Context(), other, changes), kinds.Invalid)
	// The update, and with it the reason, follows only a difference.
	other = m
	other.Guest.UserData = "not of cloud-init"
	if changes = s.diff(t, other); len(changes) != 1 || changes[0].Reason == "" {
		t.Errorf("a machine that it refuses: %+v", changes)
	}
	wantKind(t, s.Broker.Update(t.Context(), other, changes), kinds.Invalid)
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("a refused update changed it: %+v", changes)
	}
}

func (s *suite) concurrent(t *testing.T) {
	machines := make([]containerbroker.Machine, 4)
	for i := range machines {
		machines[i] = s.machine(t)
	}
	var wait sync.WaitGroup
	for _, m := range machines {
		wait.Go(func() {
			if err := s.Broker.Create(t.Context(), m, nil); err != nil {
				t.Error(err)
				return
			}
			if err := s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, m := range machines {
		wantStatus(t, s.get(t, m.Name), containerbroker.StatusRunning)
	}
}
