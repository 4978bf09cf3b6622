package sysctl

import (
	"context"
	"fmt"
	"slices"

	"hostler/internal/fault"
)

// Leave lets owner go of a parameter without putting the earlier value back,
// where one of users came after it was set: it may have found the value as it
// needs it and relies on it since. It returns those; none, and nothing done,
// where there are none, where others want the parameter too, where it is not
// owner's, or where somebody else has set it meanwhile. Idempotent.
func (m *Manager) Leave(ctx context.Context, owner, name string, users []string) (since []string, err error) {
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
		return nil, fmt.Errorf("cannot let go of kernel parameter %s: %w", name, err)
	}
	delete(known, name)
	// While it is remembered the next call does the rest.
	if err := m.writeDropIn([]string{name}, known); err != nil {
		return nil, err
	}
	return since, m.save(known)
}

// Owned names the parameters that owner has set and still wants, sorted.
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
