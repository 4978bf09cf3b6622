package storagetest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/storage"
)

func (s *filesystemSuite) notEmpty(t *testing.T) {
	r := s.made(t)
	noError(t, os.Mkdir(s.path(r), 0o755))
	file := filepath.Join(s.path(r), "precious")
	noError(t, os.WriteFile(file, []byte("keep"), 0o600))
	err := s.attachError(t, s.at(t, r, s.path(r), false))
	wantKind(t, err, fault.NeedsOperator)
	if err == nil || !strings.Contains(err.Error(), `"precious"`) {
		t.Errorf("got %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "keep" {
		t.Errorf("the file holds %q", got)
	}
	// Z25: the attachment succeeds once the file is removed.
	noError(t, os.Remove(file))
	s.mounted(t, r)
}

func (s *filesystemSuite) twoPaths(t *testing.T) {
	r := s.made(t)
	other := s.path(r) + "-too"
	s.mounted(t, r)
	for range 2 {
		value(t, s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{s.at(t, r, other, false)}))
	}
	noError(t, os.WriteFile(filepath.Join(s.path(r), "file"), []byte("shared"), 0o600))
	if got, err := os.ReadFile(filepath.Join(other, "file")); string(got) != "shared" {
		t.Errorf("read %q, %v", got, err)
	}
	if f := s.find(t, s.Source, r.ID); len(f.Attachments) != 2 {
		t.Errorf("listed as %+v", f)
	}
	s.detached(t, r, s.path(r))
	if got, err := os.ReadFile(filepath.Join(other, "file")); string(got) != "shared" {
		t.Errorf("read %q, %v", got, err)
	}
	if f := s.find(t, s.Source, r.ID); len(f.Attachments) != 1 || f.Attachments[0].Path != other {
		t.Errorf("listed as %+v", f)
	}
	s.detached(t, r, other)
}

func (s *filesystemSuite) options(t *testing.T) {
	r := s.made(t)
	s.mounted(t, r)
	if f := s.find(t, s.Source, r.ID); f.Options == nil || len(f.Options) > 0 {
		t.Errorf("mounted without options it has %#v", f.Options)
	}
	s.detached(t, r, s.path(r))
	if f := s.find(t, s.Source, r.ID); f.Options != nil {
		t.Errorf("not mounted it has %#v", f.Options)
	}
	for _, options := range [][]string{{"noatime", "nosuid"}, {"nodev"}} {
		p := s.at(t, r, s.path(r), false)
		p.Options = options
		value(t, s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{p}))
		// The second Attach does not change the options of the mount.
		if f := s.find(t, s.Source, r.ID); !slices.Equal(f.Options, []string{"noatime", "nosuid"}) {
			t.Errorf("%v are told as %#v", options, f.Options)
		}
	}
}

func (s *filesystemSuite) foreignMount(t *testing.T) {
	r := s.made(t)
	noError(t, os.Mkdir(s.path(r), 0o755))
	noError(t, unix.Mount("foreign", s.path(r), "tmpfs", 0, "size=1m"))
	wantKind(t, s.attachError(t, s.at(t, r, s.path(r), false)), fault.Conflict)
	s.detached(t, r, s.path(r))
	var st unix.Statfs_t
	noError(t, unix.Statfs(s.path(r), &st))
	if int64(st.Blocks)*st.Frsize != MiB {
		t.Error("the foreign mount is gone")
	}
	noError(t, unix.Unmount(s.path(r), 0))
	s.mounted(t, r)
	// A foreign mount over ours is reported as busy, and both stay.
	noError(t, unix.Mount("foreign", s.path(r), "tmpfs", 0, "size=1m"))
	wantBusy(t, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r, Path: s.path(r)}})[0])
	noError(t, unix.Unmount(s.path(r), 0))
	if f := s.find(t, s.Source, r.ID); len(f.Attachments) != 1 {
		t.Errorf("listed as %+v", f)
	}
}

// reboot unmounts the filesystem, like the end of a host does.
func (s *filesystemSuite) reboot(t *testing.T) {
	r := s.made(t)
	s.mounted(t, r)
	file := filepath.Join(s.path(r), "file")
	noError(t, os.WriteFile(file, []byte("kept"), 0o600))
	for _, a := range s.find(t, s.Source, r.ID).Attachments {
		noError(t, unix.Unmount(a.Path, 0))
	}
	s.mounted(t, r)
	got, err := os.ReadFile(file)
	if s.Kept && string(got) != "kept" || !s.Kept && err == nil {
		t.Errorf("read %q, %v", got, err)
	}
}

func (s *filesystemSuite) limit(t *testing.T) {
	r := s.made(t)
	a := s.mounted(t, r)
	f, err := os.Create(filepath.Join(s.path(r), "file"))
	noError(t, err)
	defer f.Close()
	block := make([]byte, MiB)
	for written := int64(0); ; written += MiB {
		if _, err := f.Write(block); err != nil {
			if !errors.Is(err, unix.ENOSPC) || written < a.Free/2 {
				t.Errorf("after %d of %d bytes: %v", written, a.Free, err)
			}
			return
		}
		if written > a.Size {
			t.Fatalf("%d bytes went into %d", written, a.Size)
		}
	}
}

func (s *filesystemSuite) grow(t *testing.T) {
	r := s.made(t)
	before := s.mounted(t, r)
	g := s.Source.(storage.FilesystemGrower)
	if s.Real {
		noError(t, os.WriteFile(filepath.Join(s.path(r), "file"), []byte("kept"), 0o600))
	}
	size := s.Grow(t, r)
	if s.GrowsUnmounted {
		wantKind(t, g.GrowFilesystems(t.Context(), []storage.GrowParams{{Ref: r, Size: size}})[0].Err, fault.NeedsOperator)
		if f := s.find(t, s.Source, r.ID); f.Growable == 0 {
			t.Errorf("listed as %+v", f)
		}
		s.detached(t, r, s.path(r))
		s.mounted(t, r)
	}
	for range 2 {
		f := value(t, g.GrowFilesystems(t.Context(), []storage.GrowParams{{Ref: r, Size: size}}))
		if len(f.Attachments) != 1 || f.Growable != 0 || s.Real && f.Attachments[0].Size <= before.Size {
			t.Errorf("before %+v, grown to %+v", before, f)
		}
	}
	if s.Real {
		if got, err := os.ReadFile(filepath.Join(s.path(r), "file")); string(got) != "kept" {
			t.Errorf("read %q, %v", got, err)
		}
	}
}

func (s *filesystemSuite) busy(t *testing.T) {
	r := s.made(t)
	s.mounted(t, r)
	release := s.Use(t, s.path(r))
	err := s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r, Path: s.path(r)}})[0]
	if len(wantBusy(t, err)) == 0 {
		t.Errorf("%v names nobody", err)
	}
	noError(t, os.WriteFile(filepath.Join(s.path(r), "file"), nil, 0o600))
	release()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r, Path: s.path(r)}})[0]
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (s *filesystemSuite) force(t *testing.T) {
	r := s.made(t)
	s.mounted(t, r)
	release := s.Use(t, s.path(r))
	noError(t, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r, Path: s.path(r), Force: true}})[0])
	if f := s.find(t, s.Source, r.ID); f == nil || len(f.Attachments) != 0 || f.Held != "" {
		t.Errorf("listed as %+v", f)
	}
	release()
}

// restricted attaches with options that would lift the restriction. It then
// lifts the restriction while the mount is in use, and attaches again.
func (s *filesystemSuite) restricted(t *testing.T) {
	r := s.made(t)
	p := s.at(t, r, s.path(r), false)
	p.Options = []string{"suid", "dev"}
	value(t, s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{p}))
	is := func(when string) {
		t.Helper()
		var stat unix.Statfs_t
		noError(t, unix.Statfs(p.Path, &stat))
		if stat.Flags&(unix.ST_NOSUID|unix.ST_NODEV) != unix.ST_NOSUID|unix.ST_NODEV {
			t.Errorf("%s it is mounted with the flags %#x", when, stat.Flags)
		}
		if f := s.find(t, s.Source, r.ID); len(f.Attachments) != 1 || f.Attachments[0].Unrestricted {
			t.Errorf("%s it is listed as %+v", when, f.Attachments)
		}
	}
	is("with suid and dev")
	used, err := os.Create(filepath.Join(p.Path, "used"))
	noError(t, err)
	defer used.Close()
	noError(t, unix.MountSetattr(unix.AT_FDCWD, p.Path, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}))
	if f := s.find(t, s.Source, r.ID); !f.Attachments[0].Unrestricted {
		t.Errorf("mounted as before it is listed as %+v", f.Attachments)
	}
	value(t, s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{p}))
	is("attached again")
	if _, err := used.WriteString("on and on"); err != nil {
		t.Errorf("what was open is not: %v", err)
	}
}
