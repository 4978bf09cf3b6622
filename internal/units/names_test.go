package units

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"hostler/internal/fault"
	"hostler/internal/run"
)

// A process that a package's script left behind keeps the unit's name, and may
// be a daemon that stays for good.
func TestLeftProcessesHinderNoLaterCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := still(Apt)
		s.set("hostler-apt.service", false)
		for _, want := range []string{"hostler-apt:2.service", "hostler-apt:2.service", "hostler-apt:3.service"} {
			name, err := r.start(t.Context(), "hostler-apt.service", nil)
			if err != nil || name != want {
				t.Fatalf("%s, %v", name, err)
			}
			s.forget(name)
			if err := r.Await(t.Context(), func(s string) { t.Error(s) }); err != nil {
				t.Error(err)
			}
			if len(s.started) == 2 {
				s.set(name, false)
			}
		}
	})
}

// A unit with a number is the same job: it is awaited, although the job's own
// name is free again.
func TestNumberedUnitIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := still(Apt)
		s.set("hostler-apt:2.service", true)
		var said []string
		err := r.Await(t.Context(), func(text string) {
			said = append(said, text)
			if len(said) == 3 {
				s.forget("hostler-apt:2.service")
			}
		})
		if err != nil || len(said) != 3 || !strings.Contains(said[2], "hostler-apt:2.service, which an earlier agent started, for 10s") {
			t.Errorf("%q, %v", said, err)
		}
		go func() {
			time.Sleep(10 * time.Second)
			s.forget("hostler-apt:2.service")
		}()
		s.set("hostler-apt:2.service", true)
		began := time.Now()
		if name, err := r.start(t.Context(), "hostler-apt.service", nil); err != nil || name != "hostler-apt.service" || time.Since(began) < 10*time.Second {
			t.Errorf("%s after %s, %v", name, time.Since(began), err)
		}
	})
}

// systemd removes a unit soon after its end. Its name is then free.
func TestEndedUnitIsGivenTimeToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := still(Apt)
		s.set("hostler-apt.service", true)
		go func() {
			time.Sleep(5 * time.Second)
			s.set("hostler-apt.service", false)
			time.Sleep(collectWithin / 2)
			s.forget("hostler-apt.service")
		}()
		if name, err := r.start(t.Context(), "hostler-apt.service", nil); err != nil || name != "hostler-apt.service" {
			t.Errorf("%s, %v", name, err)
		}
	})
}

func TestWaitForANameIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := still(Trial)
		s.set("hostler-kvm-trial.service", true)
		began := time.Now()
		_, err := r.Run(t.Context(), script("true"))
		if took := time.Since(began); took < endWithin || took > endWithin+time.Second {
			t.Errorf("it took %s", took)
		}
		if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "the former hostler-kvm-trial.service has not ended within 30s; see `systemctl status 'hostler-kvm-trial*'`") {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Run(ctx, script("true")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSilentSystemdIsTransient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		daemon := script("true")
		daemon.Detach = "/dev/null"
		for silent, c := range map[string]run.Command{"Loaded": script("true"), "Start": script("true"), "Main": daemon} {
			r, s := still(Users)
			s.silent = silent
			began := time.Now()
			_, err := r.Run(t.Context(), c)
			if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "systemd has not answered within 30s") || time.Since(began) != answerWithin {
				t.Errorf("%s: got %v after %s", silent, err, time.Since(began))
			}
		}
		r, s := still(Apt)
		s.silent = "Loaded"
		if err := r.Await(t.Context(), func(string) {}); !fault.Is(err, fault.Transient) {
			t.Errorf("got %v", err)
		}
	})
}

func TestBrokenConnectionEndsTheWaitForAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result, breaks := make(chan string), time.Now().Add(5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := ending(ctx, result, func() bool { return time.Now().Before(breaks) }); err == nil || !strings.Contains(err.Error(), "broke off") {
			t.Errorf("got %v", err)
		}
		go func() {
			time.Sleep(time.Minute)
			result <- "done"
		}()
		if r, err := ending(ctx, result, func() bool { return true }); r != "done" || err != nil {
			t.Errorf("%s, %v", r, err)
		}
	})
}

func TestLoadedUnits(t *testing.T) {
	got := loaded([]dbus.UnitStatus{
		{Name: "a", LoadState: "loaded", ActiveState: "active"},
		{Name: "b", LoadState: "loaded", ActiveState: "deactivating"},
		{Name: "c", LoadState: "loaded", ActiveState: "inactive"},
		{Name: "d", LoadState: "loaded", ActiveState: "failed"},
		{Name: "e", LoadState: "not-found", ActiveState: "inactive"},
	})
	if want := map[string]bool{"a": true, "b": true, "c": false, "d": false}; !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestEndOfAProcess(t *testing.T) {
	for name, c := range map[string]struct {
		of    string
		units []string
		left  []string
	}{
		"its own unit":                {of: "hostler-dnsmasq-br-lan.service", units: []string{"hostler-dnsmasq-br-lan.service", "a"}, left: []string{"a"}},
		"another unit":                {of: "hostlerd.service", units: []string{"hostlerd.service"}, left: []string{"hostlerd.service"}},
		"a killed agent's scope":      {of: "hostler-end-7.scope", units: []string{"hostler-end-7.scope"}},
		"a scope of a former process": {of: "hostlerd.service", units: []string{"hostlerd.service", "hostler-end-7.scope"}, left: []string{"hostlerd.service"}},
		"a process that has ended":    {units: []string{"a"}, left: []string{"a"}},
	} {
		r, s := still(DNSMasq)
		for _, unit := range c.units {
			s.set(unit, true)
		}
		if c.of != "" {
			s.of[7] = c.of
		}
		// A scope of a former process costs an attempt.
		for range 2 {
			if err := r.End(t.Context(), 7); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left := slices.Sorted(maps.Keys(s.units)); len(s.of) > 0 || !slices.Equal(left, c.left) {
			t.Errorf("%s: left %v, %v", name, left, s.of)
		}
	}
}

// states stands for systemd: it knows units, and starts no process.
type states struct {
	// silent is the method that gets no answer.
	silent string

	mu      sync.Mutex
	units   map[string]bool // and whether they run
	started []string
	of      map[int]string // the unit of each process
}

func still(kind Kind) (*Runner, *states) {
	s := &states{units: map[string]bool{}, of: map[int]string{}}
	return &Runner{kind: kind, system: s, log: slog.New(slog.DiscardHandler)}, s
}

func (s *states) set(unit string, runs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.units[unit] = runs
}

func (s *states) forget(unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.units, unit)
}

func (s *states) answer(ctx context.Context, method string) error {
	if s.silent == method {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *states) Start(ctx context.Context, unit string, properties []dbus.Property) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.units[unit]; taken {
		return errExists
	}
	s.units[unit], s.started = true, append(s.started, unit)
	for _, p := range properties {
		if pids, ok := p.Value.Value().([]uint32); ok {
			s.of[int(pids[0])] = unit
		}
	}
	return s.answer(ctx, "Start")
}

func (s *states) Loaded(ctx context.Context, _ string) (map[string]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.units), s.answer(ctx, "Loaded")
}

func (s *states) Main(ctx context.Context, _ string) (int, error) { return 1, s.answer(ctx, "Main") }

func (s *states) UnitOf(ctx context.Context, pid int) (string, error) {
	return s.of[pid], s.answer(ctx, "UnitOf")
}

func (s *states) Stop(ctx context.Context, unit string) error {
	s.forget(unit)
	maps.DeleteFunc(s.of, func(_ int, name string) bool { return name == unit })
	return s.answer(ctx, "Stop")
}
