package lxd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// forgetProcesses has LXD, which is about to start, forget the processes that
// it wrote down for its networks and that are not there any more. It kills
// whoever has their numbers now, itself included (LXD 5.0.2). Under systemd the
// package's tmpfiles.d does this while the host boots.
func (i *Initialiser) forgetProcesses(dir string) {
	for _, name := range []string{"dnsmasq", "forkdns"} {
		files, _ := filepath.Glob(filepath.Join(dir, "networks", "*", name+".pid"))
		for _, file := range files {
			if i.lives(file) {
				continue
			}
			if err := os.Remove(file); err != nil {
				i.log.Warn("The number of a former process of LXD cannot be forgotten.", "file", file, "error", err)
				continue
			}
			i.log.Info("The number of a former process of LXD is forgotten.", "file", file)
		}
	}
}

// lives says whether the process of a pid file serves the file's network still:
// then its arguments name the network's folder.
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
