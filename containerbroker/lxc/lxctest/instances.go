package lxctest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// at is a path below the folder of instances.
func (h *Host) at(parts ...string) string {
	return filepath.Join(append([]string{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.folder.Fd())}, parts...)...)
}

// Names are the names of all instances, in order.
func (h *Host) Names() (names []string) {
	h.t.Helper()
	_, err := h.folder.Seek(0, 0)
	h.must(err)
	all, err := h.folder.Readdirnames(-1)
	h.must(err)
	for _, name := range all {
		if !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Note is the part of an instance's hostler.json that tests read.
type Note struct {
	Version   int    `json:"version"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
	Token     string `json:"token"`
	Told      struct {
		UserData string `json:"user-data"`
	} `json:"told,omitzero"`
}

// Instance is an instance as its files show it.
type Instance struct {
	// Config and Text are the content of config and hostler.json. Text is "" and
	// Note zero if the instance bears no stamp.
	Config, Text string
	Note         Note
	// Folder tells instances of the same name apart.
	Folder string
}

// Look reads the files of an instance.
func (h *Host) Look(name string) (i Instance) {
	h.t.Helper()
	info, err := os.Stat(h.at(name))
	h.must(err)
	config, err := os.ReadFile(h.at(name, "config"))
	h.must(err)
	note, err := os.ReadFile(h.at(name, "hostler.json"))
	if !os.IsNotExist(err) {
		h.must(err)
		h.must(json.Unmarshal(note, &i.Note))
	}
	i.Config, i.Text = string(config), string(note)
	i.Folder = fmt.Sprint(value(i.Config, "lxc.rootfs.path"), inode(info))
	return i
}

// value returns the value of a key of a config.
func value(config, key string) string {
	for line := range strings.Lines(config) {
		if found, v, is := strings.Cut(line, "="); is && strings.TrimSpace(found) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Make makes an instance by LXC's own tools. With a namespace it bears the stamp
// of an agent.
func (h *Host) Make(name, namespace string, run bool) {
	h.t.Helper()
	h.quietly(func() {
		given := filepath.Join(h.dir, "given")
		h.must(os.WriteFile(given, []byte("lxc.net.0.type = veth\nlxc.net.0.link = lxcbr0\nlxc.net.0.flags = up\n"), 0o600))
		// A complete instance appears at once: else the agent could take a folder
		// without a stamp for foreign.
		making := filepath.Join(h.dir, "made")
		h.must(os.Mkdir(making, 0o711))
		h.Run("lxc-create", "-P", making, "-n", name, "-t", "busybox", "-f", given)
		text, err := os.ReadFile(filepath.Join(making, name, "config"))
		h.must(err)
		text = []byte(strings.ReplaceAll(string(text), making, h.Path))
		h.must(os.WriteFile(filepath.Join(making, name, "config"), text, 0o600))
		h.must(os.Chmod(filepath.Join(making, name), 0o700))
		if namespace != "" {
			note, err := json.Marshal(Note{Version: 1, Name: name, Namespace: namespace, UID: "uid-of-" + name, Token: "x"})
			h.must(err)
			h.must(os.WriteFile(filepath.Join(making, name, "hostler.json"), note, 0o600))
		}
		h.must(os.Rename(filepath.Join(making, name), filepath.Join(h.Path, name)))
		h.must(os.RemoveAll(making))
		if run {
			h.Run("lxc-start", "-P", h.Path, "-n", name, "-d")
		}
	})
}

// Left describes the remains of instances besides their folders.
func (h *Host) Left() (all []string) {
	h.t.Helper()
	for _, name := range h.Names() {
		root := value(h.Look(name).Config, "lxc.rootfs.path")
		all = append(all, "-"+filepath.Base(root))
	}
	own := filepath.Join(h.Path, "."+h.Namespace)
	script := `cd "$0" 2>/dev/null || exit 0
ls -d making/* pool/guests/* pool/privileged/* pool/leftovers/* removed/*/config removed/*/hostler.json 2>/dev/null || true`
	used := all
	all = nil
	for path := range strings.Lines(h.Run("sh", "-c", script, own)) {
		path = strings.TrimSpace(path)
		if !slices.Contains(used, "-"+filepath.Base(path)) {
			all = append(all, path)
		}
	}
	return all
}
