package storagetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hostler/internal/fault"
	"hostler/storage"
)

// FilesystemHarness holds the inputs of the suite for filesystem sources. The
// suite removes the filesystems that it makes.
type FilesystemHarness struct {
	// Source belongs to the agent of Namespace, Other to the agent of
	// OtherNamespace; both use the same directory.
	Source, Other             storage.FilesystemSource
	Namespace, OtherNamespace string
	// Params returns size, type and device of a new filesystem. Device returns
	// the device before each attachment. Grow makes room for a larger
	// filesystem and returns its size.
	Params func(t *testing.T, r storage.Ref) storage.FilesystemParams
	Device func(t *testing.T, r storage.Ref) string
	Grow   func(t *testing.T, r storage.Ref) (size int64)
	// GrowsUnmounted: this process may not grow mounted filesystems. Growing is
	// then fault.NeedsOperator and happens at the next attachment.
	GrowsUnmounted bool
	// Release reverts Params.
	Release func(t *testing.T, r storage.Ref)
	// Real: attached filesystems are really mounted. Kept: their content
	// outlives a detach.
	Real, Kept bool
	// Mounts is a directory for mount points.
	Mounts string
	// Use keeps a directory busy until the returned function is called.
	Use func(t *testing.T, path string) (release func())
}

type filesystemSuite struct {
	FilesystemHarness
	next int
}

// RunFilesystems tests that a source keeps the contract of filesystems.
func RunFilesystems(t *testing.T, h FilesystemHarness) {
	s := &filesystemSuite{FilesystemHarness: h}
	t.Run("V10 Z25 create is idempotent", s.create)
	t.Run("V11 V20 V31 attach is idempotent", s.attach)
	t.Run("V12 V32 detach and destroy of a missing filesystem succeed", s.gone)
	t.Run("V22 Z26 read-only is honoured", s.readOnly)
	t.Run("ids and paths that lead elsewhere are refused", s.traversal)
	t.Run("another stamp changes nothing", s.otherStamp)
	t.Run("namespaces are separate", s.namespaces)
	t.Run("a mounted filesystem is not destroyed", s.destroyMounted)
	t.Run("Z22 list shows all", s.list)
	t.Run("any order of calls is idempotent", s.anyOrder)
	if h.Real {
		t.Run("V11 a directory with contents is refused and the contents are named", s.notEmpty)
		t.Run("mounts are nosuid and nodev on the host", s.restricted)
		t.Run("two paths show the same files", s.twoPaths)
		t.Run("S31 the options of a mount are reported while it is mounted", s.options)
		t.Run("a foreign mount is left alone", s.foreignMount)
		t.Run("V13 S24 attached again after the mounts are gone", s.reboot)
		t.Run("V20 Z26 a filesystem takes no more than its declared size", s.limit)
	}
	if _, ok := h.Source.(storage.FilesystemGrower); ok && h.Grow != nil {
		t.Run("filesystems grow while in use", s.grow)
	}
	if h.Use != nil {
		t.Run("Z24 a busy mount stays and the error names its holder", s.busy)
		t.Run("a busy mount is removed by force", s.force)
	}
}

func (s *filesystemSuite) ref(t *testing.T) storage.Ref {
	t.Helper()
	s.next++
	r := storage.Ref{ID: fmt.Sprintf("f%d", s.next), Stamp: storage.Stamp{Namespace: s.Namespace, UID: fmt.Sprintf("uid-%d", s.next)}}
	t.Cleanup(func() { s.remove(t, r) })
	return r
}

func (s *filesystemSuite) remove(t failer, r storage.Ref) {
	t.Helper()
	noError(t, s.Source.Detach(context.Background(), []storage.DetachParams{{Ref: r}})[0])
	noError(t, s.Source.Destroy(context.Background(), []storage.Ref{r})[0])
	if t, ok := t.(*testing.T); ok && s.Release != nil {
		s.Release(t, r)
	}
}

func (s *filesystemSuite) made(t *testing.T) storage.Ref {
	t.Helper()
	r := s.ref(t)
	value(t, s.Source.Create(t.Context(), []storage.FilesystemParams{s.Params(t, r)}))
	return r
}

func (s *filesystemSuite) path(r storage.Ref) string { return filepath.Join(s.Mounts, r.ID) }

func (s *filesystemSuite) at(t *testing.T, r storage.Ref, path string, readOnly bool) storage.FilesystemAttachParams {
	t.Helper()
	p := storage.FilesystemAttachParams{Ref: r, Path: path, ReadOnly: readOnly}
	if s.Device != nil {
		p.Device = s.Device(t, r)
	}
	return p
}

func (s *filesystemSuite) mounted(t *testing.T, r storage.Ref) storage.FilesystemAttachment {
	t.Helper()
	return value(t, s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{s.at(t, r, s.path(r), false)}))
}

func (s *filesystemSuite) attachError(t *testing.T, p storage.FilesystemAttachParams) error {
	t.Helper()
	return s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{p})[0].Err
}

func (s *filesystemSuite) detached(t *testing.T, r storage.Ref, path string) {
	t.Helper()
	noError(t, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r, Path: path}})[0])
}

func (s *filesystemSuite) find(t failer, from storage.FilesystemSource, id string) *storage.Filesystem {
	t.Helper()
	all, err := from.List(context.Background())
	noError(t, err)
	for i := range all {
		if all[i].ID == id {
			return &all[i]
		}
	}
	return nil
}

func (s *filesystemSuite) create(t *testing.T) {
	r := s.ref(t)
	p := s.Params(t, r)
	first := value(t, s.Source.Create(t.Context(), []storage.FilesystemParams{p}))
	again := value(t, s.Source.Create(t.Context(), []storage.FilesystemParams{p}))
	if first.Ref != r || first.Problem != "" || len(first.Attachments) != 0 || again.UUID != first.UUID || again.Size != first.Size {
		t.Errorf("made %+v, again %+v", first, again)
	}
}

func (s *filesystemSuite) attach(t *testing.T) {
	r := s.made(t)
	for range 2 {
		a := s.mounted(t, r)
		if a.Path != s.path(r) || a.ReadOnly || s.Real && (a.Size == 0 || a.Free == 0 || a.Free > a.Size) {
			t.Errorf("attached as %+v", a)
		}
		f := s.find(t, s.Source, r.ID)
		if f == nil || len(f.Attachments) != 1 || f.Attachments[0].Path != s.path(r) || f.Growable != 0 {
			t.Errorf("listed as %+v", f)
		}
	}
	wantKind(t, s.attachError(t, s.at(t, r, s.path(r), true)), fault.Conflict)
	if !s.Real {
		return
	}
	file := filepath.Join(s.path(r), "file")
	noError(t, os.WriteFile(file, []byte("kept"), 0o600))
	s.detached(t, r, s.path(r))
	if _, err := os.Lstat(s.path(r)); err == nil {
		t.Error("the mount point is left")
	}
	s.mounted(t, r)
	got, err := os.ReadFile(file)
	if s.Kept && string(got) != "kept" || !s.Kept && err == nil {
		t.Errorf("read %q, %v", got, err)
	}
}

func (s *filesystemSuite) gone(t *testing.T) {
	never, made := s.ref(t), s.made(t)
	for _, r := range []storage.Ref{never, made} {
		for range 2 {
			s.detached(t, r, s.path(r))
			s.detached(t, r, "")
			noError(t, s.Source.Destroy(t.Context(), []storage.Ref{r})[0])
		}
		if f := s.find(t, s.Source, r.ID); f != nil {
			t.Errorf("still there: %+v", f)
		}
	}
	wantKind(t, s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{{Ref: never, Path: s.path(never), Device: "/dev/null"}})[0].Err, fault.NotFound)
}

func (s *filesystemSuite) readOnly(t *testing.T) {
	r := s.made(t)
	a := value(t, s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{s.at(t, r, s.path(r), true)}))
	if !a.ReadOnly {
		t.Errorf("attached as %+v", a)
	}
	if s.Real {
		if err := os.WriteFile(filepath.Join(s.path(r), "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("wrote with %v", err)
		}
	}
}

func (s *filesystemSuite) traversal(t *testing.T) {
	r := s.made(t)
	for _, id := range evil {
		bad := storage.Ref{ID: id, Stamp: r.Stamp}
		p := s.Params(t, r)
		p.Ref = bad
		wantKind(t, s.Source.Create(t.Context(), []storage.FilesystemParams{p})[0].Err, fault.Invalid)
		wantKind(t, s.attachError(t, storage.FilesystemAttachParams{Ref: bad, Path: s.path(r), Device: p.Device}), fault.Invalid)
		wantKind(t, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: bad}})[0], fault.Invalid)
		wantKind(t, s.Source.Destroy(t.Context(), []storage.Ref{bad})[0], fault.Invalid)
	}
	for _, path := range []string{"", "/", "relative", s.Mounts + "/../x", s.Mounts + "/x/", s.Mounts + "\x00"} {
		wantKind(t, s.attachError(t, s.at(t, r, path, false)), fault.Invalid)
	}
	if !s.Real {
		return
	}
	link := filepath.Join(s.Mounts, "link")
	noError(t, os.Symlink(t.TempDir(), link))
	t.Cleanup(func() { noError(t, os.Remove(link)) })
	for _, path := range []string{link, filepath.Join(link, "below")} {
		wantKind(t, s.attachError(t, s.at(t, r, path, false)), fault.NeedsOperator)
	}
}

func (s *filesystemSuite) otherStamp(t *testing.T) {
	r := s.made(t)
	p := s.Params(t, r)
	p.Stamp.UID = "another"
	wantKind(t, s.Source.Create(t.Context(), []storage.FilesystemParams{p})[0].Err, fault.Conflict)
	s.mounted(t, r)
	wantKind(t, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: p.Ref}})[0], fault.Conflict)
	wantKind(t, s.Source.Destroy(t.Context(), []storage.Ref{p.Ref})[0], fault.Conflict)
	if f := s.find(t, s.Source, r.ID); f == nil || f.Ref != r || len(f.Attachments) != 1 {
		t.Errorf("listed as %+v", f)
	}
}

func (s *filesystemSuite) namespaces(t *testing.T) {
	r := s.made(t)
	s.mounted(t, r)
	if f := s.find(t, s.Other, r.ID); f != nil {
		t.Errorf("the other agent sees %+v", f)
	}
	theirs := storage.Ref{ID: r.ID, Stamp: storage.Stamp{Namespace: s.OtherNamespace, UID: r.Stamp.UID}}
	wantKind(t, s.Other.Detach(t.Context(), []storage.DetachParams{{Ref: theirs}})[0], fault.Conflict)
	wantKind(t, s.Other.Destroy(t.Context(), []storage.Ref{theirs})[0], fault.Conflict)
	if f := s.find(t, s.Source, r.ID); f == nil || len(f.Attachments) != 1 {
		t.Errorf("listed as %+v", f)
	}
}

func (s *filesystemSuite) destroyMounted(t *testing.T) {
	r := s.made(t)
	s.mounted(t, r)
	wantBusy(t, s.Source.Destroy(t.Context(), []storage.Ref{r})[0])
	if f := s.find(t, s.Source, r.ID); f == nil || len(f.Attachments) != 1 {
		t.Errorf("listed as %+v", f)
	}
}

func (s *filesystemSuite) list(t *testing.T) {
	want := map[string]bool{}
	for range 3 {
		want[s.made(t).ID] = true
	}
	r := s.made(t)
	want[r.ID] = true
	testRecords(t, s.Source, r, func() string { return s.find(t, s.Source, r.ID).Record })
	all, err := s.Source.List(t.Context())
	noError(t, err)
	for _, f := range all {
		if !want[f.ID] || f.Stamp.Namespace != s.Namespace || f.Problem != "" {
			t.Errorf("listed %+v", f)
		}
		delete(want, f.ID)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}
