package lxd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// forgetProcesses removes the pid files of LXD's network processes that no
// longer run. Call it before LXD starts, because LXD 5.0.2 would kill any
// process that now has such a pid, even LXD itself. Under systemd, the
// package's tmpfiles.d removes these files when the host boots.
func (i *Initialiser) forgetProcesses(dir string) {
	for _, name := range []string{"dnsmasq", "forkdns"} {
		files, _ := filepath.Glob(filepath.Join(dir, "networks", "*", name+".pid"))
		for _, file := range files {
			if i.lives(file) {
				continue
			}
			if err := os.Remove(file); err != nil {
				i.log.Warn("The process number of an earlier daemon cannot be removed.", "file", file, "error", err)
				continue
			}
			i.log.Info("The process number of an earlier daemon is removed.", "file", file)
		}
	}
}

// lives reports whether the process in a pid file still serves the file's
// network. The arguments of such a process contain the network's folder.
func (i *Initialiser) lives(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	var process struct {
		PID int `yaml:"pid"`
	}
	if yaml.Unmarshal(text, &process) != nil {
		return false
	}
	command, err := os.ReadFile(filepath.Join(i.opts.Paths.Host("/proc"), strconv.Itoa(process.PID), "cmdline"))
	return err == nil && strings.Contains(string(command), filepath.Dir(file)+"/")
}
