package lxc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/containerbroker"
)

func noteOf(name string) *note {
	n := &note{Disks: map[string]givenDisk{"data": {Source: "/dev/loop1", Device: "/dev/hostler-data"}}}
	n.setStamp(name, containerbroker.Stamp{Namespace: "hostler", UID: "u", Token: "t", Record: "{}", Store: "s"})
	return n
}

// A note comes back as it was written. A copy of it in another instance's folder
// counts for nothing.
func TestNoteIsKept(t *testing.T) {
	dir := t.TempDir()
	if n, err := readNote(dir, "web"); n != nil || err != nil {
		t.Fatalf("without a file: %v, %v", n, err)
	}
	if err := noteOf("web").write(dir); err != nil {
		t.Fatal(err)
	}
	n, err := readNote(dir, "web")
	if err != nil || *n.stamp() != *noteOf("web").stamp() || n.Disks["data"].Source != "/dev/loop1" {
		t.Errorf("%+v, %v", n, err)
	}
	if info, err := os.Stat(filepath.Join(dir, fileNote)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if n, err := readNote(dir, "copy"); n != nil || err != nil {
		t.Errorf("in a copy: %v, %v", n, err)
	}
}

// A file that is no note of this version makes the instance neither foreign nor
// hostler's, and never blocks the reader.
// Attack: guests
func TestUnreadableNote(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"truncated": func(p string) error { return os.WriteFile(p, []byte(`{"version": 1, "name"`), 0o600) },
		"later": func(p string) error {
			return os.WriteFile(p, []byte(`{"version": 2, "name": "web", "namespace": "n"}`), 0o600)
		},
		"unknown key": func(p string) error {
			return os.WriteFile(p, []byte(`{"version": 1, "name": "web", "namespace": "n", "x": 1}`), 0o600)
		},
		"two": func(p string) error {
			return os.WriteFile(p, []byte(`{"version": 1, "name": "web", "namespace": "n"}{}`), 0o600)
		},
		"large":    func(p string) error { return os.WriteFile(p, make([]byte, 10<<20), 0o600) },
		"a fifo":   func(p string) error { return unix.Mkfifo(p, 0o600) },
		"a folder": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Options{Path: t.TempDir(), Namespace: "hostler"})
			dir := d.instance("web")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, fileConfig), nil, 0o600), put(filepath.Join(dir, fileNote))); err != nil {
				t.Fatal(err)
			}
			if _, err := readNote(dir, "web"); !errors.Is(err, errUnreadable) {
				t.Errorf("%v", err)
			}
			all, err := d.List(t.Context(), true)
			if err != nil || len(all) != 1 || all[0].Status != containerbroker.StatusError || all[0].Stamp == nil || all[0].Stamp.Namespace == "hostler" {
				t.Errorf("listed as %+v, %v", all, err)
			}
			s := containerbroker.Stamp{Namespace: "hostler", UID: "u", Token: "t"}
			for what, err := range map[string]error{
				"delete": d.Delete(t.Context(), "web", s), "stamp": d.Stamp(t.Context(), "web", nil, s),
				"start": d.SetPower(t.Context(), "web", containerbroker.PowerStart, 0),
			} {
				if err == nil || !strings.Contains(err.Error(), "unreadable") {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func FuzzNote(f *testing.F) {
	f.Add([]byte(`{"version": 1, "name": "web", "namespace": "n", "nics": {"eth0": {}}, "disks": null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseNote(text)
		if err != nil {
			return
		}
		dir := t.TempDir()
		if err := n.write(dir); err != nil {
			return // it is too large once it is written out
		}
		again, err := readNote(dir, n.Name)
		if err != nil || *again.stamp() != *n.stamp() {
			t.Errorf("%+v came back as %+v, %v", n, again, err)
		}
	})
}
