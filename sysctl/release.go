package sysctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"hostler/internal/fault"
)

// ReleaseInUse releases a parameter of owner without restoring the earlier
// value, if some of users appeared after the parameter was set, because these
// users may rely on the value. For example, IPv4 forwarding stays on for
// Docker's bridge. ReleaseInUse returns the users that appeared since. It does
// nothing and returns nil if there are no such users, if other owners want the
// parameter too, if owner does not want the parameter, or if another process
// has set it meanwhile. It is idempotent.
func (m *Manager) ReleaseInUse(ctx context.Context, owner, name string, users []string) (since []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, err := m.load()
	if err != nil {
		return nil, err
	}
	r := known[name]
	if r == nil {
		return nil, nil
	}
	first, wants := r.Owners[owner]
	current, err := m.Read(name)
	if !wants || len(r.Owners) > 1 || fault.Is(err, fault.NotFound) || err == nil && (current != r.Value || current == r.Previous) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, user := range users {
		if !slices.Contains(first.Users, user) {
			since = append(since, user)
		}
	}
	if len(since) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot release kernel parameter %s: %w", name, err)
	}
	delete(known, name)
	// Save the record last. While it exists, the next call completes an
	// interrupted ReleaseInUse.
	if err := m.writeDropIn([]string{name}, known); err != nil {
		return nil, err
	}
	return since, m.save(known)
}

// Owned returns the names of the parameters that owner has set and still wants,
// sorted.
func (m *Manager) Owned(owner string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, err := m.load()
	if err != nil {
		return nil, err
	}
	var names []string
	for name, r := range known {
		if _, wants := r.Owners[owner]; wants {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Holds reports whether settings is the complete wish of owner and the host has
// these settings, so that Apply would change nothing. It only reads.
func (m *Manager) Holds(owner string, settings []Setting) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, err := m.load()
	if err != nil {
		return false
	}
	before := slices.Sorted(maps.Keys(known))
	was, _ := json.Marshal(known)
	drop, err := m.declare(known, owner, settings)
	if is, _ := json.Marshal(known); err != nil || len(drop) > 0 || string(is) != string(was) {
		return false
	}
	ours := map[string]string{}
	for name, r := range known {
		ours[name] = r.Value
		_, wants := r.Owners[owner]
		if current, err := m.Read(name); wants && (err != nil || current != r.Value) {
			return false
		}
	}
	old, err := os.ReadFile(m.dropIn)
	return (err == nil || errors.Is(err, fs.ErrNotExist)) && render(string(old), before, ours) == string(old)
}
