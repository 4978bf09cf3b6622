package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"hostler/tests/matrix"
)

// supported are the releases of hosts that hostler supports.
var supported = []string{"debian/12", "debian/13", "ubuntu/24.04", "ubuntu/26.04"}

// machines is `make test-vm`: all scenarios on VMs of Debian 12. If arguments
// name releases, it runs the scenario of `make test` on a VM of each, and
// cloud-init's.
func (s *suite) machines() {
	if len(s.only) == 0 {
		s.phase("virtual machines", func() error {
			return s.goTest([]string{machinePackage}, "-tags", "integration,long", "-count=1", "-timeout", longLimit)
		})
		return
	}
	releases := s.only
	s.only = nil
	for _, release := range releases {
		s.phase("virtual machine "+release, func() error {
			return s.results.Run(os.Stdout, []string{"HOSTLER_TEST_RELEASE=" + release}, "-tags", "integration", "-count=1", "-timeout", blackBoxLimit, machinePackage)
		})
		s.phase("cloud-init on "+release, func() error {
			return s.results.Run(os.Stdout, []string{"HOSTLER_TEST_RELEASE=" + release}, "-tags", "integration,long", "-run", "TestCloudInit", "-count=1", "-timeout", longLimit, machinePackage)
		})
	}
}

// hosts is `make test-hosts`: a test host of each release, a table of what
// passed on which, and the managers of its NIC. Arguments name single releases.
func (s *suite) hosts() {
	path, err := filepath.Abs(filepath.Join(".cache", "hosts.json"))
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.Setenv(matrix.Variable, path))
	}
	if err != nil {
		s.phase("hosts", func() error { return err })
		return
	}
	releases := supported
	if len(s.only) > 0 {
		releases, s.only = s.only, nil
	}
	for _, release := range releases {
		s.phase(release, func() error {
			return s.results.Run(os.Stdout, []string{"HOSTLER_TEST_RELEASE=" + release}, "-tags", "integration", "-count=1", "-p=1", "-timeout", blackBoxLimit,
				"-run", "^(TestHost|TestTheManagersOfANIC)$", "./tests/hosts", "./tests/networks")
		})
	}
	s.phase("matrix", func() error {
		cells, err := matrix.Read(path)
		if err != nil {
			return err
		}
		fmt.Println()
		return matrix.Print(os.Stdout, releases, cells)
	})
}
