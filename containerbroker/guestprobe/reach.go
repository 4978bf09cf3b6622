package guestprobe

import (
	"context"
	"fmt"
	"time"

	"hostler/containerbroker"
)

// sshReach looks for an address at which a guest is reachable.
type sshReach struct {
	// Addresses returns the addresses that are known now. It is called at once
	// and then at intervals of Every. An error ends the search.
	Addresses func(ctx context.Context) ([]string, error)
	// Check proves that the guest itself answers at an address. A failed check
	// is repeated after the time Retry.
	Check        func(ctx context.Context, address string) error
	Every, Retry time.Duration
	// Limit bounds the duration of the search.
	Limit time.Duration
}

// failure is the result of the last failed check.
type failure struct {
	address string
	err     error
}

// first returns the first address that proves to be the guest's. It checks up
// to containerbroker.MaxAddresses addresses in parallel, each as soon as it is
// known. No check is still running when first() returns.
func (r sshReach) first(ctx context.Context) (string, error) {
	limited, cancel := context.WithTimeout(ctx, r.Limit)
	found, failures := make(chan string), make(chan failure)
	checks := map[string]chan struct{}{}
	defer func() {
		cancel()
		for _, done := range checks {
			<-done
		}
	}()
	look := time.NewTicker(r.Every)
	defer look.Stop()
	var last failure
	for {
		addresses, err := r.Addresses(limited)
		if err != nil && limited.Err() == nil {
			return "", fmt.Errorf("cannot learn its addresses: %w", err)
		}
		for _, address := range addresses {
			if checks[address] == nil && len(checks) < containerbroker.MaxAddresses {
				done := make(chan struct{})
				checks[address] = done
				go func() {
					defer close(done)
					r.check(limited, address, found, failures)
				}()
			}
		}
		for waiting := true; waiting; {
			select {
			case address := <-found:
				return address, nil
			case last = <-failures:
			case <-look.C:
				waiting = false
			case <-limited.Done():
				return "", r.why(ctx, len(checks), last)
			}
		}
	}
}

// why returns the error of a search that found no address.
func (r sshReach) why(ctx context.Context, checks int, last failure) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case checks == 0:
		return fmt.Errorf("it got no address within %s", r.Limit)
	case last.err == nil:
		return fmt.Errorf("no address of it answered within %s", r.Limit)
	}
	return fmt.Errorf("cannot reach it at any address within %s; the last address tried was %s: %w", r.Limit, last.address, last.err)
}

// check checks an address again and again until it is proven or ctx ends.
func (r sshReach) check(ctx context.Context, address string, found chan<- string, failures chan<- failure) {
	for {
		err := r.Check(ctx, address)
		if err == nil {
			select {
			case found <- address:
			case <-ctx.Done():
			}
			return
		}
		select {
		case failures <- failure{address, err}:
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(r.Retry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
