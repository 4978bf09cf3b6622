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

// Firewall manages the nftables table of a namespace.
type Firewall struct {
	name   string
	runner run.Runner
	log    *slog.Logger

	mu sync.Mutex
	// loaded is the kernel's form of the rules that this process loaded last. If
	// the kernel's rules differ from it, another process changed a rule.
	// loadedFor is the script of these rules.
	loaded, loadedFor string
}

// New returns the Firewall of the namespace; runner runs nft.
func New(namespace string, runner run.Runner, log *slog.Logger) (*Firewall, error) {
	if !goodNamespace.MatchString(namespace) {
		return nil, invalid("%q is not a namespace", namespace)
	}
	return &Firewall{name: tableName(namespace), runner: runner, log: log}, nil
}

// Ruleset is an observation of all nftables tables of the host.
type Ruleset struct {
	name string
	l    listing
	// loaded and loadedFor are the Firewall's values at the observation.
	loaded, loadedFor string
}

// Observe reads all tables of the host.
func (f *Firewall) Observe(ctx context.Context) (Ruleset, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, err := f.nft(ctx, "-j", "list", "ruleset")
	return Ruleset{name: f.name, l: l, loaded: f.loaded, loadedFor: f.loadedFor}, err
}

// Holds reports whether our table has exactly these rules, as Apply left them.
// Before this process's first Apply it returns false, because only Apply
// records the kernel's form of the rules.
func (r Ruleset) Holds(wanted Rules) bool {
	var there []string
	for _, o := range r.l.Objects {
		if o.Table != nil && o.Table.Name == r.name {
			there = append(there, o.Table.Family)
		}
	}
	if len(wanted.Networks) == 0 {
		return !slices.Contains(there, inet) && !slices.Contains(there, bridge)
	}
	chains := table(wanted)
	return r.l.matches(r.name, chains) && r.loadedFor == script(r.name, nil, chains) && r.loaded == r.l.rulesOf(r.name)
}

// families returns the families whose tables a script replaces. there lists the
// families of our present tables. families returns the bridge family only if
// needed, because some kernels do not support it.
func families(there []string, chains []chain) []string {
	if slices.Contains(there, bridge) || chains[len(chains)-1].family == bridge {
		return []string{inet, bridge}
	}
	return []string{inet}
}

// Apply makes the table hold exactly these rules, in one transaction, and
// reports whether it wrote anything. If a table of our name holds only foreign
// rules, the error is a Conflict.
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
	rules := script(f.name, nil, chains)
	if l.matches(f.name, chains) && (f.loadedFor != rules || f.loaded == l.rulesOf(f.name)) {
		f.loadedFor, f.loaded = rules, l.rulesOf(f.name)
		return false, nil
	}
	text := script(f.name, families(there, chains), chains)
	if err := f.foreign(l); err != nil {
		return false, err
	}
	if err := f.load(ctx, text); err != nil {
		return false, err
	}
	if err := failpoint.Hit(failpoint.NetRulesLoaded); err != nil {
		return true, err
	}
	// Check the result now. An unnoticed mismatch would cause a transaction at
	// every pass.
	if l, _, err = f.list(ctx); err != nil {
		return true, err
	}
	if !l.matches(f.name, chains) {
		return true, fault.New(fault.Transient, "cannot load the firewall: another process changed the table %s at the same time", f.name)
	}
	f.loadedFor, f.loaded = rules, l.rulesOf(f.name)
	f.log.Info("firewall loaded", "table", f.name, "rules", strings.Count(text, " comment "))
	return true, nil
}

// Remove deletes the table and reports whether there was one. It succeeds if
// the table is absent.
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

// foreign returns a Conflict error for a table of our name without any rule of
// ours.
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
		if rules > 0 && own == 0 { // a table without rules loses nothing
			return fault.New(fault.Conflict, "cannot load the firewall: the nftables table %s %s is not hostler's", family, f.name)
		}
	}
	return nil
}

// list reads our tables; there lists the families that have such a table.
func (f *Firewall) list(ctx context.Context) (l listing, there []string, err error) {
	// List the tables' names first, because nft's error for an absent table
	// cannot be told from other errors.
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
	return fault.Explain(err, "cannot load the firewall")
}
