package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"hostler/internal/fault"
)

// switches maps the parameters that change the forwarding of all links to the
// folder of the links' parameters.
var switches = map[string]string{
	"net/ipv4/ip_forward":          "net/ipv4/conf",
	"net/ipv6/conf/all/forwarding": "net/ipv6/conf",
}

// redirects is another parameter that changes with IPv4's switch. It gets the
// opposite value.
const redirects = "net/ipv4/conf/all/accept_redirects"

// sideEffects returns the values that the kernel gives to other parameters when
// the named parameter changes to value. For example, net/ipv4/ip_forward=1 sets
// net/ipv4/conf/eth0/forwarding to 1. Most parameters have no side effects.
func (m *Manager) sideEffects(name, value string) (map[string]string, error) {
	folder, ok := switches[name]
	if !ok {
		return nil, nil
	}
	links, err := os.ReadDir(filepath.Join(m.procSys, folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list the parameters that follow kernel parameter %s: %w", name, err)
	}
	made := map[string]string{}
	for _, link := range links {
		if side := Name(folder, link.Name(), "forwarding"); link.Name() != "all" && checkName(side) == nil {
			made[side] = value
		}
	}
	if folder == "net/ipv4/conf" {
		made[redirects] = "0"
		if value == "0" {
			made[redirects] = "1"
		}
	}
	return made, nil
}

// sideValues returns the current values of other parameters that the kernel
// would not restore when the named parameter goes back to value.
func (m *Manager) sideValues(name, value string) (map[string]string, error) {
	made, err := m.sideEffects(name, value)
	if err != nil {
		return nil, err
	}
	for side, value := range made {
		current, err := m.Read(side)
		switch {
		case fault.Is(err, fault.NotFound), err == nil && current == value:
			delete(made, side)
		case err != nil:
			return nil, err
		default:
			made[side] = current
		}
	}
	return made, nil
}

// dropChanged removes from r.SideValues the parameters that another process has
// changed since, so that their earlier values are not restored. Call it before
// the parameter itself is restored, because this changes the other parameters.
func (m *Manager) dropChanged(name string, r *remembered) error {
	if current, err := m.Read(name); len(r.SideValues) == 0 || err != nil || current != r.Value {
		return nil
	}
	made, err := m.sideEffects(name, r.Value)
	if err != nil {
		return err
	}
	for side := range r.SideValues {
		if current, err := m.Read(side); err == nil && current != made[side] {
			delete(r.SideValues, side)
		}
	}
	return nil
}
