package guard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler/hostnet"
)

// target is an address that answered before a change and must answer after it.
type target struct {
	Address netip.Addr `json:"address"`
	// What describes the target to the operator, e.g. "the default gateway" or
	// "your own address".
	What string `json:"what"`
	// Gateway means that a default route must use the address. Echo means that
	// the target itself must answer, not only the first neighbour on the way.
	Gateway bool `json:"gateway,omitempty"`
	Echo    bool `json:"echo,omitempty"`
}

func (t target) String() string { return t.What + " " + t.Address.String() }

// clientsFor is the time for which a client's address is remembered.
const clientsFor = 10 * time.Minute

// Remember notes the address of a client that asks for a change, so that the
// guard probes this address too.
func (g *Guard) Remember(client netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for a, at := range g.clients {
		if time.Since(at) > clientsFor {
			delete(g.clients, a)
		}
	}
	if client.IsValid() && !client.IsLoopback() && !client.IsLinkLocalUnicast() {
		g.clients[client.Unmap()] = time.Now()
	}
}

// targets returns the gateways, configured addresses and clients that are
// reachable now.
func (g *Guard) targets(ctx context.Context, o hostnet.Observed) []target {
	var all []target
	add := func(t target) {
		if !slices.ContainsFunc(all, func(have target) bool { return have.Address == t.Address && have.Gateway == t.Gateway }) {
			all = append(all, t)
		}
	}
	for _, r := range o.Routes {
		if r.Default() && r.Gateway.IsValid() {
			add(target{Address: r.Gateway, What: "the default gateway", Gateway: true})
		}
	}
	for _, a := range g.o.Probes() {
		add(target{Address: a, What: "the probe address"})
	}
	g.mu.Lock()
	for a, at := range g.clients {
		if time.Since(at) < clientsFor {
			add(target{Address: a, What: "your own address"})
		}
	}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, baseLimit)
	defer cancel()
	answers := make([]*target, len(all))
	var wg sync.WaitGroup
	for i, t := range all {
		wg.Go(func() {
			t.Echo = !t.Gateway
			if g.ask(ctx, o, t) == nil {
				answers[i] = &t
				return
			}
			// If the target answers no echo, the first neighbour on the way may still
			// answer.
			if first := (target{Address: t.Address, What: t.What}); t.Echo && g.ask(ctx, o, first) == nil {
				answers[i] = &first
			}
		})
	}
	wg.Wait()
	var kept []target
	for i, t := range answers {
		if t == nil {
			g.o.Log.Warn("Targets that do not answer before a change are not probed after it.", "target", all[i].String())
			continue
		}
		kept = append(kept, *t)
	}
	return kept
}

// probe asks all targets concurrently, until all answer or ctx ends.
func (g *Guard) probe(ctx context.Context, targets []target) error {
	failures := make([]error, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			for {
				o, err := g.o.Host.Observe(ctx)
				if err == nil {
					err = g.ask(ctx, o, t)
				}
				if err == nil {
					failures[i] = nil
					return
				}
				if ctx.Err() == nil || failures[i] == nil {
					failures[i] = fmt.Errorf("%s cannot be reached: %w", t, err)
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(look):
				}
			}
		})
	}
	wg.Wait()
	var texts []string
	for _, err := range failures {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	if len(texts) > 0 {
		return fmt.Errorf("%s", strings.Join(texts, "; "))
	}
	return nil
}

// ask checks one target in the way that succeeded before the change.
func (g *Guard) ask(ctx context.Context, o hostnet.Observed, t target) error {
	if t.Gateway {
		// An address of this host is no gateway. Way returns an error for such an
		// address.
		if !t.Address.IsLinkLocalUnicast() {
			if _, _, err := g.o.Host.Way(ctx, t.Address); err != nil {
				return err
			}
		}
		for _, r := range o.Routes {
			if r.Default() && r.Gateway == t.Address {
				return g.o.Host.Resolve(ctx, r.Link, t.Address)
			}
		}
		return fmt.Errorf("no default route uses it")
	}
	link, gateway, err := g.o.Host.Way(ctx, t.Address)
	if err != nil {
		return err
	}
	if !gateway.IsValid() {
		gateway = t.Address
	}
	ctx, cancel := context.WithTimeout(ctx, baseLimit)
	defer cancel()
	if t.Echo {
		return g.o.Host.Echo(ctx, t.Address)
	}
	return g.o.Host.Resolve(ctx, link, gateway)
}
