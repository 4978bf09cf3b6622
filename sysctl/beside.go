package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"hostler/internal/fault"
)

// switches are the parameters with which the kernel changes others, all links'
// forwarding, by the folder of the links.
var switches = map[string]string{
	"net/ipv4/ip_forward":          "net/ipv4/conf",
	"net/ipv6/conf/all/forwarding": "net/ipv6/conf",
}

// redirects goes with IPv4's switch, the other way round.
const redirects = "net/ipv4/conf/all/accept_redirects"

// along is what the kernel makes of other parameters when the named one
// changes to value; nothing for most.
func (m *Manager) along(name, value string) (map[string]string, error) {
	folder, ok := switches[name]
	if !ok {
		return nil, nil
	}
	links, err := os.ReadDir(filepath.Join(m.procSys, folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list what goes with kernel parameter %s: %w", name, err)
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

// beside is what the kernel would not make again of other parameters when the
// named one goes back to value.
func (m *Manager) beside(name, value string) (map[string]string, error) {
	made, err := m.along(name, value)
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

// concede leaves out of what is to be put back beside a parameter what somebody
// has changed since. Once the parameter itself was put back that cannot be told
// any more.
func (m *Manager) concede(name string, r *remembered) error {
	if current, err := m.Read(name); len(r.Beside) == 0 || err != nil || current != r.Value {
		return nil
	}
	made, err := m.along(name, r.Value)
	if err != nil {
		return err
	}
	for side := range r.Beside {
		if current, err := m.Read(side); err == nil && current != made[side] {
			delete(r.Beside, side)
		}
	}
	return nil
}
