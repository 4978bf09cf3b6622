package firewall

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

const (
	nftTimeout = 30 * time.Second
	nftOutput  = 64 << 20
)

// Firewall keeps the table of one namespace.
type Firewall struct {
	name   string
	runner run.Runner
	log    *slog.Logger

	mu sync.Mutex
	// loaded is the kernel's own form of the rules last written, by which a
	// rule changed in place is seen.
	loaded, loadedFor string
}

// New returns the Firewall of the namespace; nft is run by runner.
func New(namespace string, runner run.Runner, log *slog.Logger) (*Firewall, error) {
	if !goodNamespace.MatchString(namespace) {
		return nil, invalid("%q is no namespace", namespace)
	}
	return &Firewall{name: Table(namespace), runner: runner, log: log}, nil
}

// Apply makes the table hold just these rules, in one transaction, and says
// whether anything had to be written. A table of our name with only rules that
// are not ours is a Conflict.
func (f *Firewall) Apply(ctx context.Context, r Rules) (changed bool, err error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	if len(r.Networks) == 0 {
		return f.Remove(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	chains := table(r)
	l, there, err := f.list(ctx)
	if err != nil {
		return false, err
	}
	families := []string{inet}
	// A kernel that knows no tables of bridges is not asked for one without need.
	if slices.Contains(there, bridge) || chains[len(chains)-1].family == bridge {
		families = append(families, bridge)
	}
	text := script(f.name, families, chains)
	if l.matches(f.name, chains) && (f.loadedFor != text || f.loaded == l.rulesOf(f.name)) {
		f.loadedFor, f.loaded = text, l.rulesOf(f.name)
		return false, nil
	}
	if err := f.foreign(l); err != nil {
		return false, err
	}
	if err := f.load(ctx, text); err != nil {
		return false, err
	}
	if err := failpoint.Hit(failpoint.NetRulesLoaded); err != nil {
		return true, err
	}
	// Trust is good: a listing that does not match is an error now, not a
	// second transaction at every pass.
	if l, _, err = f.list(ctx); err != nil {
		return true, err
	}
	if !l.matches(f.name, chains) {
		return true, fault.New(fault.Transient, "cannot load the firewall: the table %s was changed by another at the same time", f.name)
	}
	f.loadedFor, f.loaded = text, l.rulesOf(f.name)
	f.log.Info("firewall loaded", "table", f.name, "rules", strings.Count(text, " comment "))
	return true, nil
}

// Remove deletes the table; an absent one is success.
func (f *Firewall) Remove(ctx context.Context) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, there, err := f.list(ctx)
	if err != nil || len(there) == 0 {
		return false, err
	}
	if err := f.foreign(l); err != nil {
		return false, err
	}
	f.loaded, f.loadedFor = "", ""
	if err := f.load(ctx, script(f.name, there, nil)); err != nil {
		return false, err
	}
	f.log.Info("firewall removed", "table", f.name)
	return true, nil
}

// foreign says no to a table of our name without a single rule of ours.
func (f *Firewall) foreign(l listing) error {
	for _, family := range []string{inet, bridge} {
		rules, own := 0, 0
		for _, comments := range l.present(family, f.name) {
			rules += len(comments)
			for _, c := range comments {
				if strings.HasPrefix(c, commentPrefix) {
					own++
				}
			}
		}
		if rules > 0 && own == 0 { // without any rule nothing is lost with it
			return fault.New(fault.Conflict, "cannot load the firewall: the nftables table %s %s is not hostler's", family, f.name)
		}
	}
	return nil
}

// list reads our tables; there are the families in which there is one.
func (f *Firewall) list(ctx context.Context) (l listing, there []string, err error) {
	// All tables by name first: to ask for an absent one is an error like any
	// other.
	tables, err := f.nft(ctx, "-j", "list", "tables")
	if err != nil {
		return listing{}, nil, err
	}
	for _, o := range tables.Objects {
		if o.Table == nil || o.Table.Name != f.name || o.Table.Family != inet && o.Table.Family != bridge {
			continue
		}
		there = append(there, o.Table.Family)
		one, err := f.nft(ctx, "-j", "list", "table", o.Table.Family, f.name)
		if err != nil {
			return listing{}, nil, err
		}
		l.Objects = append(l.Objects, one.Objects...)
	}
	return l, there, nil
}

func (f *Firewall) nft(ctx context.Context, args ...string) (listing, error) {
	result, err := f.runner.Run(ctx, run.Command{Path: paths.Nft, Args: args, Timeout: nftTimeout, Limit: nftOutput})
	if err != nil {
		return listing{}, fmt.Errorf("cannot list the firewall: %w", err)
	}
	return parse(result.Stdout)
}

func (f *Firewall) load(ctx context.Context, text string) error {
	_, err := f.runner.Run(ctx, run.Command{Path: paths.Nft, Args: []string{"-f", "-"}, Stdin: strings.NewReader(text), Timeout: nftTimeout})
	if err != nil {
		return fmt.Errorf("cannot load the firewall: %w", err)
	}
	return nil
}
