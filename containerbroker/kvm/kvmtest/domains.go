package kvmtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// State returns a domain's state in virsh's words, e.g. "shut off", or "" if
// the domain does not exist.
func (s *Server) State(name string) string {
	out, err := s.virsh("domstate", name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

// Names returns the names of all domains.
func (s *Server) Names() []string {
	s.t.Helper()
	return strings.Fields(s.Virsh("list", "--all", "--name"))
}

// Files returns the names of the files in the pool's folder, except images.
func (s *Server) Files() (names []string) {
	s.t.Helper()
	entries, err := os.ReadDir(s.PoolDir)
	check(s.t, "read the pool", err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "hostler-image-") {
			names = append(names, e.Name())
		}
	}
	return names
}

// Guest returns the process id of a running guest. It fails the test if the
// guest does not run.
func (s *Server) Guest(name string) int {
	s.t.Helper()
	pid := s.Process(name)
	if pid == 0 {
		s.t.Fatalf("%s does not run", name)
	}
	return pid
}

// Process returns the process id of a guest, or 0 if the guest does not run.
func (s *Server) Process(name string) int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Runtime, name+".pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	check(s.t, "find the process of "+name, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check(s.t, "find the process of "+name, err)
	return pid
}
