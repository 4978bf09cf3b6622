//go:build integration

package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
	"hostler/tests/matrix"
)

// site is a host under test, with the images for its machines.
type site struct {
	*testing.T
	host    *harness.Host
	release harness.Release
	// container and disk are image references.
	container, disk string
	cell            matrix.Cell
}

type machine struct{ Name, Status, Message string }

func (s *site) machines() (all []machine, err error) {
	out, err := s.host.Try("hostler get machines -o json")
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal([]byte(out), &all)
}

// names lists the declared machines.
func (s *site) names() (names []string) {
	s.Helper()
	all, err := s.machines()
	if err != nil {
		s.Fatal(err)
	}
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

func (s *site) has(name string) bool {
	s.Helper()
	return strings.Contains(" "+strings.Join(s.names(), " ")+" ", " "+name+" ")
}

func (s *site) machine(name, want string) {
	s.Helper()
	harness.Wait(s, name+" "+want, 3*time.Minute, func() error {
		all, err := s.machines()
		if err != nil {
			return err
		}
		for _, m := range all {
			if m.Name == name && m.Status == want {
				return nil
			}
		}
		return fmt.Errorf("machines are %+v", all)
	})
}

func (s *site) active(unit string) {
	s.Helper()
	harness.Wait(s, unit, time.Minute, func() error {
		out, _ := s.host.Try("systemctl is-active " + unit)
		if strings.TrimSpace(out) != "active" {
			return errors.New("it is " + out)
		}
		return nil
	})
}
