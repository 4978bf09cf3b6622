package sysctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"hostler/internal/atomicfile"
	"hostler/internal/failpoint"
	"hostler/internal/fault"
)

// remembered is the record of a parameter that hostler has set.
type remembered struct {
	// Previous is the value from before hostler first set it.
	Previous string `json:"previous"`
	// Value is the value that hostler set last. If the kernel has a different
	// value, another process set that value and hostler does not restore
	// Previous.
	Value  string             `json:"value"`
	Owners map[string]Setting `json:"owners"`
	// SideValues holds the earlier values of other parameters that the kernel
	// changes together with this parameter but does not restore together with it.
	SideValues map[string]string `json:"beside,omitempty"`
}

type memory map[string]*remembered

// Apply makes settings the complete wish of owner. It writes the settings to
// the kernel and to the sysctl.d file. A parameter that no owner wants any
// longer gets back its value from before hostler. Apply returns the names of
// the parameters whose value in the kernel changed. If a parameter cannot be
// set, Apply sets all others before it returns the error. The error is a
// Conflict if two owners want different values. Applying the same settings
// again writes nothing.
func (m *Manager) Apply(ctx context.Context, owner string, settings []Setting) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range settings {
		if err := checkSetting(s); err != nil {
			return nil, err
		}
	}
	known, err := m.load()
	if err != nil {
		return nil, err
	}
	before := slices.Sorted(maps.Keys(known))
	drop, err := m.declare(known, owner, settings)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot set kernel parameters: %w", err)
	}
	// Save the earlier values durably before any change. They are deleted only
	// after they are restored.
	keep := maps.Clone(known)
	maps.Copy(keep, drop)
	if err := m.save(keep); err != nil {
		return nil, err
	}
	if err := m.writeDropIn(before, known); err != nil {
		return nil, err
	}
	changed, failed := m.carryOut(owner, known, drop)
	if err := m.save(known); err != nil {
		failed = append(failed, err)
	}
	return changed, errors.Join(failed...)
}

// declare puts the owner's settings into known and returns the parameters that
// no owner wants any longer.
func (m *Manager) declare(known memory, owner string, settings []Setting) (memory, error) {
	wanted := map[string]Setting{}
	for _, s := range settings {
		wanted[s.Name] = s
	}
	drop := memory{}
	for name, r := range known {
		if _, still := wanted[name]; !still {
			delete(r.Owners, owner)
			if len(r.Owners) == 0 {
				if err := m.dropChanged(name, r); err != nil {
					return nil, err
				}
				drop[name] = r
				delete(known, name)
			}
		}
	}
	for _, s := range settings {
		current, err := m.Read(s.Name)
		if fault.Is(err, fault.NotFound) || err == nil && !m.Writable(s.Name) && !s.metBy(current) {
			// Do not record the setting, because every boot would try it in vain.
			// write() returns the error.
			return nil, m.write(s.Name, s.Value)
		}
		if err != nil {
			return nil, err
		}
		r := known[s.Name]
		if r == nil && s.metBy(current) {
			continue // the kernel has the value already, so hostler does not own it
		}
		if r != nil && s.AtLeast && s.metBy(current) && current != r.Value {
			delete(known, s.Name) // another process raised the limit further and owns the value now
			continue
		}
		if r == nil {
			r = &remembered{Previous: current, Owners: map[string]Setting{}}
			if r.SideValues, err = m.sideValues(s.Name, current); err != nil {
				return nil, err
			}
			known[s.Name] = r
		}
		if first, again := r.Owners[owner]; again {
			s.Users = first.Users
		}
		r.Owners[owner] = s
		if r.Value, err = agreed(s.Name, r.Owners); err != nil {
			return nil, err
		}
	}
	return drop, nil
}

// agreed returns a value that satisfies all owners.
func agreed(name string, owners map[string]Setting) (string, error) {
	for _, candidate := range owners {
		value, all := normal(candidate.Value), true
		for _, s := range owners {
			all = all && s.metBy(value)
		}
		if all {
			return value, nil
		}
	}
	return "", fault.New(fault.Conflict, "cannot set kernel parameter %s: %v want different values", name, slices.Sorted(maps.Keys(owners)))
}

// carryOut sets the owner's values and restores the values in drop. It does not
// set parameters that only other owners want, because they may belong to an
// absent interface.
func (m *Manager) carryOut(owner string, known, drop memory) (changed []string, failed []error) {
	set := func(name, value string) {
		if err := m.write(name, value); err != nil {
			failed = append(failed, err)
			return
		}
		m.log.Info("kernel parameter set", "parameter", name, "value", value)
		changed = append(changed, name)
	}
	for _, name := range slices.Sorted(maps.Keys(drop)) {
		r := drop[name]
		if current, err := m.Read(name); err == nil && current == r.Value && current != r.Previous {
			set(name, r.Previous)
		}
		// Read the kernel's value again. After a crash between the write above and
		// the writes below, only the writes below are missing.
		if current, err := m.Read(name); err != nil || current != r.Previous {
			continue
		}
		for _, side := range slices.Sorted(maps.Keys(r.SideValues)) {
			if current, err := m.Read(side); err == nil && current != r.SideValues[side] {
				set(side, r.SideValues[side])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if _, wants := known[name].Owners[owner]; !wants {
			continue
		}
		if current, err := m.Read(name); err != nil || current != known[name].Value {
			set(name, known[name].Value)
		}
	}
	return changed, failed
}

func (m *Manager) load() (memory, error) {
	data, err := os.ReadFile(m.state)
	if errors.Is(err, fs.ErrNotExist) {
		return memory{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the earlier kernel parameters: %w", err)
	}
	known := memory{}
	if err := json.Unmarshal(data, &known); err != nil {
		return nil, fault.New(fault.NeedsOperator, "cannot read the earlier kernel parameters in %s: %v; remove the file to drop them", m.state, err)
	}
	for name, r := range known {
		if r == nil || checkName(name) != nil {
			return nil, fault.New(fault.NeedsOperator, "cannot read the earlier kernel parameters in %s: bad entry %q; remove the file to drop them", m.state, name)
		}
		if r.Owners == nil {
			r.Owners = map[string]Setting{}
		}
	}
	return known, nil
}

func (m *Manager) save(known memory) error {
	old, err := os.ReadFile(m.state)
	if len(known) == 0 {
		if err != nil {
			return nil
		}
		return atomicfile.Remove(m.state)
	}
	data, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot remember the earlier kernel parameters: %w", err)
	}
	if string(old) == string(data) {
		return nil
	}
	return atomicfile.Write(m.state, data, 0o600)
}

// unsafeAtBoot reports whether a parameter must not be set before the agent has loaded
// its firewall table: with route_localnet, neighbours reach services that listen on the
// loopback address.
func unsafeAtBoot(name string) bool { return path.Base(name) == "route_localnet" }

// writeDropIn writes the known values to the sysctl.d file, but for those that are
// unsafe at boot. before lists the parameters that were known until now.
func (m *Manager) writeDropIn(before []string, known memory) error {
	ours := map[string]string{}
	for name, r := range known {
		if !unsafeAtBoot(name) {
			ours[name] = r.Value
		}
	}
	old, err := os.ReadFile(m.dropIn)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read %s: %w", m.dropIn, err)
	}
	text := render(string(old), before, ours)
	switch {
	case text == string(old):
		return nil
	case text == "":
		return atomicfile.Remove(m.dropIn)
	}
	// A minimal Debian may lack the folder.
	if err := os.MkdirAll(filepath.Dir(m.dropIn), 0o755); err != nil {
		return fmt.Errorf("cannot write %s: %w", m.dropIn, err)
	}
	return atomicfile.Write(m.dropIn, []byte(text), 0o644,
		atomicfile.BeforeRename(func() error { return failpoint.Hit(failpoint.InitConfNoRename) }),
		atomicfile.AfterRename(func() error { return failpoint.Hit(failpoint.InitConfRenamed) }))
}
