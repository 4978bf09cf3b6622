package guestprobe

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hostler/containerbroker"
)

func reach(addresses ...string) sshReach {
	return sshReach{
		Addresses: func(context.Context) ([]string, error) { return addresses, nil },
		Every:     time.Millisecond, Retry: time.Millisecond, Limit: 10 * time.Second,
	}
}

// D4: all addresses are tried in parallel; the first proven address wins, and
// no check is running when it is returned.
func TestFirstAddressWins(t *testing.T) {
	r := reach("10.0.0.1", "10.0.0.2", "10.0.0.3")
	var running atomic.Int64
	all := make(chan struct{})
	r.Check = func(ctx context.Context, address string) error {
		if running.Add(1) == 3 {
			close(all)
		}
		defer running.Add(-1)
		select {
		case <-all:
		case <-ctx.Done():
			return ctx.Err()
		}
		if address == "10.0.0.2" {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	got, err := r.first(t.Context())
	if got != "10.0.0.2" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if n := running.Load(); n != 0 {
		t.Errorf("%d are still being tried", n)
	}
}

// D4 D5: an address that becomes known later is tried too, a failed address is
// tried again, and each address has one check at a time.
func TestAddressesComeAndAreRetried(t *testing.T) {
	r := reach()
	var looks, tries, at atomic.Int64
	r.Addresses = func(context.Context) ([]string, error) {
		if looks.Add(1) < 3 {
			return nil, nil
		}
		return []string{"10.0.0.1"}, nil
	}
	r.Check = func(context.Context, string) error {
		if at.Add(1) != 1 {
			t.Error("two checks of one address at once")
		}
		defer at.Add(-1)
		if tries.Add(1) < 4 {
			return errors.New("another machine")
		}
		return nil
	}
	if got, err := r.first(t.Context()); got != "10.0.0.1" || err != nil || tries.Load() != 4 {
		t.Errorf("%q, %v after %d tries", got, err, tries.Load())
	}
}

// D4: the error of a failed search says what was wrong.
func TestFailedSearchReportsItsCause(t *testing.T) {
	r := reach()
	r.Limit = 20 * time.Millisecond
	r.Check = func(context.Context, string) error { return errors.New("connection refused") }
	if _, err := r.first(t.Context()); err == nil || err.Error() != "it got no address within 20ms" {
		t.Errorf("without an address: %v", err)
	}
	r.Addresses = reach("10.0.0.1").Addresses
	if _, err := r.first(t.Context()); err == nil || !strings.Contains(err.Error(), "the last address tried was 10.0.0.1: connection refused") {
		t.Errorf("refused: %v", err)
	}
	r.Check = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	if _, err := r.first(t.Context()); err == nil || err.Error() != "no address of it answered within 20ms" {
		t.Errorf("silent: %v", err)
	}
	r.Addresses = func(context.Context) ([]string, error) { return nil, errors.New("the hypervisor is gone") }
	if _, err := r.first(t.Context()); err == nil || err.Error() != "cannot learn its addresses: the hypervisor is gone" {
		t.Errorf("no list: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r = reach("10.0.0.1")
	r.Check = func(ctx context.Context, _ string) error { cancel(); <-ctx.Done(); return ctx.Err() }
	if _, err := r.first(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A guest's report of its keys is treated as bytes only, and its length is
// bounded.
func TestHostKeysOfAReport(t *testing.T) {
	report := "init systemd\nssh-key AAAA\nssh-key !!\nssh-key\n" + strings.Repeat("ssh-key AAAB\n", 20) + "result\nssh-key AAAC\n"
	keys := hostKeys(report)
	if len(keys) != maxHostKeys || !slices.Equal(keys[0], []byte{0, 0, 0}) || slices.ContainsFunc(keys, func(k []byte) bool { return slices.Equal(k, []byte{0, 0, 2}) }) {
		t.Errorf("%v", keys)
	}
}

// A guest reports its own addresses, and this host connects to each.
// Attack: guests
func TestSearchLimitsItsAddresses(t *testing.T) {
	var addresses []string
	for i := range 15_000 {
		addresses = append(addresses, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String())
	}
	r := reach(addresses...)
	r.Limit = 50 * time.Millisecond
	var mu sync.Mutex
	tried := map[string]bool{}
	r.Check = func(_ context.Context, address string) error {
		mu.Lock()
		defer mu.Unlock()
		tried[address] = true
		return errors.New("closed")
	}
	if got, err := r.first(t.Context()); err == nil {
		t.Errorf("found %s", got)
	}
	if len(tried) == 0 || len(tried) > containerbroker.MaxAddresses {
		t.Errorf("%d addresses were tried", len(tried))
	}
}
