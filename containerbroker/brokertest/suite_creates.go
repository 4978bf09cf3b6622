package brokertest

import (
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	kinds "hostler/internal/fault"
)

func (s *suite) createStamps(t *testing.T) {
	m := s.machine(t)
	m.RootDisk, m.Privileged, m.Nesting = s.rootDisk(), !s.Virtual, !s.Virtual
	before := time.Now().Add(-time.Minute)
	must(t, s.Broker.Create(t.Context(), m, nil))
	i := s.get(t, m.Name)
	wantStatus(t, i, containerbroker.StatusStopped)
	if i.Stamp == nil || *i.Stamp != m.Stamp {
		t.Errorf("the stamp came back as %+v", i.Stamp)
	}
	if i.ImageID != m.ImageID || i.CPUs != m.CPUs || i.Memory != m.Memory || i.RootDisk != m.RootDisk && !i.RootUnlimited {
		t.Errorf("made as %+v", i)
	}
	if !i.Autostart || i.Privileged == s.Virtual || i.Nesting == s.Virtual {
		t.Errorf("switches: %+v", i)
	}
	if i.Created.Before(before) || i.Created.After(time.Now().Add(time.Minute)) {
		t.Errorf("created at %s", i.Created)
	}
	if i.PID != 0 || len(i.Addresses) != 0 {
		t.Errorf("a stopped instance has process %d and addresses %v", i.PID, i.Addresses)
	}
	if changes := s.diff(t, m); len(changes) != 0 {
		t.Errorf("it differs right after it was made: %+v", changes)
	}
}

func (s *suite) createAgain(t *testing.T) {
	m := s.running(t)
	pid := s.get(t, m.Name).PID
	begin := time.Now()
	must(t, s.Broker.Create(t.Context(), m, nil))
	if took := time.Since(begin); took > waitLimit/4 {
		t.Errorf("it took %s to see that the instance is there", took)
	}
	if i := s.get(t, m.Name); i.PID != pid || i.Status != containerbroker.StatusRunning {
		t.Errorf("creating again touched it: %+v", i)
	}
}

func (s *suite) createConflict(t *testing.T) {
	m := s.created(t)
	for what, change := range map[string]func(*containerbroker.Stamp){
		"token":     func(x *containerbroker.Stamp) { x.Token = "another" },
		"uid":       func(x *containerbroker.Stamp) { x.UID = "another" },
		"namespace": func(x *containerbroker.Stamp) { x.Namespace = s.OtherNamespace },
	} {
		other := m
		change(&other.Stamp)
		t.Run("another "+what, func(t *testing.T) {
			wantKind(t, s.Broker.Create(t.Context(), other, nil), kinds.Conflict)
		})
	}
	s.AddForeign(t, "conform-foreign")
	foreign := m
	foreign.Name = "conform-foreign"
	wantKind(t, s.Broker.Create(t.Context(), foreign, nil), kinds.Conflict)
	if i := s.get(t, foreign.Name); i.Stamp != nil {
		t.Errorf("the foreign instance got a stamp: %+v", i.Stamp)
	}
	if i := s.get(t, m.Name); *i.Stamp != m.Stamp {
		t.Errorf("the stamp changed: %+v", i.Stamp)
	}
}

// createRefused checks that the caller learns that no instance of the attempt can
// appear later.
func (s *suite) createRefused(t *testing.T) {
	taken := s.created(t)
	taken.Stamp.Token = "another"
	for what, change := range map[string]func(*containerbroker.Machine){
		"the image is missing": func(m *containerbroker.Machine) { m.ImageID = strings.Repeat("0", 64) },
		"the name is taken":    func(m *containerbroker.Machine) { *m = taken },
		"invalid settings":     func(m *containerbroker.Machine) { m.NICs = []containerbroker.NIC{{Name: "eth*"}} },
	} {
		m := s.machine(t)
		change(&m)
		if err := s.Broker.Create(t.Context(), m, nil); err == nil || !containerbroker.IsNotMade(err) {
			t.Errorf("%s: %v", what, err)
		}
		if i := s.find(t, m.Name); i != nil && i.Stamp.Token == m.Stamp.Token {
			t.Errorf("%s: it was made", what)
		}
	}
}

func (s *suite) createLostReply(t *testing.T) {
	m := s.machine(t)
	s.LoseCreate(t)
	if err := s.Broker.Create(t.Context(), m, nil); err != nil {
		if containerbroker.IsNotMade(err) {
			t.Errorf("the outcome is not known: %v", err)
		}
		must(t, s.Broker.Create(t.Context(), m, nil)) // the caller tries again
	}
	if i := s.get(t, m.Name); *i.Stamp != m.Stamp {
		t.Errorf("made with stamp %+v", i.Stamp)
	}
}
