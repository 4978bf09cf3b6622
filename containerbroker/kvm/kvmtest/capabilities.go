package kvmtest

import (
	"maps"
	"os"
	"path/filepath"

	"hostler/internal/atomicfile"
)

// libvirt records in files which abilities a QEMU has. Without these files,
// every private libvirt would ask QEMU again, which takes seconds. So the
// repository's folder .cache keeps them for later servers. libvirt itself
// checks that the files belong to the installed QEMU.

// useCapabilities copies the kept files to the server.
func (s *Server) useCapabilities() {
	s.t.Helper()
	s.writeCapabilities(s.capabilities(), read(s.keptCapabilities()))
}

// keepCapabilities replaces the kept files by the server's files if they
// differ.
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

// read maps the names of the XML files in a folder to their contents.
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
