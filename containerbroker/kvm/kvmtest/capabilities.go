package kvmtest

import (
	"maps"
	"os"
	"path/filepath"

	"hostler/internal/atomicfile"
)

// libvirt notes in files which abilities a QEMU has: asking QEMU takes seconds,
// at each start of a private libvirt without these files. libvirt itself checks
// that they are of the QEMU at hand. The clone keeps them for later servers.

// useCapabilities gives the server the files that the clone keeps.
func (s *Server) useCapabilities() {
	s.t.Helper()
	s.writeCapabilities(s.capabilities(), read(s.keptCapabilities()))
}

// keepCapabilities keeps the server's files, if they are others.
func (s *Server) keepCapabilities() {
	s.t.Helper()
	now, kept := read(s.capabilities()), read(s.keptCapabilities())
	if maps.Equal(now, kept) {
		return
	}
	s.writeCapabilities(s.keptCapabilities(), now)
	for name := range kept {
		if _, stays := now[name]; !stays {
			_ = os.Remove(filepath.Join(s.keptCapabilities(), name))
		}
	}
}

func (s *Server) capabilities() string { return filepath.Join(s.Dir, "cache/qemu/capabilities") }

func (s *Server) keptCapabilities() string { return filepath.Join(top(s.t), ".cache", "libvirt") }

func (s *Server) writeCapabilities(dir string, files map[string]string) {
	s.t.Helper()
	check(s.t, "make the folder of QEMU's abilities", os.MkdirAll(dir, 0o755))
	for name, text := range files {
		check(s.t, "write QEMU's abilities", atomicfile.Write(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// read returns the files of a folder by name.
func read(dir string) map[string]string {
	files := map[string]string{}
	found, _ := filepath.Glob(filepath.Join(dir, "*.xml"))
	for _, path := range found {
		if text, err := os.ReadFile(path); err == nil {
			files[filepath.Base(path)] = string(text)
		}
	}
	return files
}
