// Package storagetest holds the conformance suites for volume and filesystem
// sources, fake sources in memory that pass them too, and real host filesystems
// to run them on.
package storagetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"hostler/internal/fault"
	"hostler/storage"
)

// MiB is the unit of the suites' sizes.
const MiB = 1 << 20

// VolumeHarness holds the inputs of the suite for volume sources. The suite
// removes the volumes that it makes.
type VolumeHarness struct {
	// Source belongs to the agent of Namespace, Other to the agent of
	// OtherNamespace; both use the same directory.
	Source, Other             storage.VolumeSource
	Namespace, OtherNamespace string
	// Real: attached volumes are real block devices.
	Real bool
	// TooLarge is a size, in bytes, that does not fit; 0: no such test.
	TooLarge int64
	// Use keeps a device busy until the returned function is called.
	Use func(t *testing.T, device string) (release func())
}

type volumeSuite struct {
	VolumeHarness
	next int
}

// RunVolumes tests that a source keeps the contract of volumes.
func RunVolumes(t *testing.T, h VolumeHarness) {
	s := &volumeSuite{VolumeHarness: h}
	t.Run("V2 create makes whole volumes and is idempotent", s.create)
	t.Run("V3 attach is idempotent and data outlives detach", s.attach)
	t.Run("V5 V6 detach and destroy of a missing volume succeed", s.gone)
	t.Run("V6 ids that are paths are refused", s.traversal)
	t.Run("an attached volume is not destroyed", s.destroyAttached)
	t.Run("another stamp changes nothing", s.otherStamp)
	t.Run("namespaces are separate", s.namespaces)
	t.Run("V7 Z22 list shows all", s.list)
	t.Run("S16 an invalid item fails no other item", s.bulk)
	t.Run("any order of calls is idempotent", s.anyOrder)
	t.Run("many callers at once", s.concurrent)
	if _, ok := h.Source.(storage.VolumeGrower); ok {
		t.Run("volumes grow and never shrink", s.grow)
	}
	if h.TooLarge > 0 {
		t.Run("a volume that does not fit is refused and leaves no file", s.tooLarge)
	}
	if h.Use != nil {
		t.Run("Z24 a busy volume stays attached and the error names its holder", s.busy)
	}
}

// ref returns a new name, whose volume is removed when the test ends.
func (s *volumeSuite) ref(t *testing.T) storage.Ref {
	t.Helper()
	s.next++
	r := storage.Ref{ID: fmt.Sprintf("v%d", s.next), Stamp: storage.Stamp{Namespace: s.Namespace, UID: fmt.Sprintf("uid-%d", s.next)}}
	t.Cleanup(func() { s.remove(t, r) })
	return r
}

func (s *volumeSuite) remove(t *testing.T, r storage.Ref) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	noError(t, s.Source.Detach(ctx, []storage.DetachParams{{Ref: r}})[0])
	noError(t, s.Source.Destroy(ctx, []storage.Ref{r})[0])
}

func (s *volumeSuite) made(t *testing.T, size int64) storage.Ref {
	t.Helper()
	r := s.ref(t)
	value(t, s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: r, Size: size}}))
	return r
}

func (s *volumeSuite) attached(t *testing.T, r storage.Ref, readOnly bool) storage.VolumeAttachment {
	t.Helper()
	return value(t, s.Source.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r, ReadOnly: readOnly}}))
}

func (s *volumeSuite) detached(t *testing.T, r storage.Ref) {
	t.Helper()
	noError(t, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r}})[0])
}

// find returns the listed volume, or nil.
func (s *volumeSuite) find(t *testing.T, from storage.VolumeSource, id string) *storage.Volume {
	t.Helper()
	all, err := from.List(t.Context())
	noError(t, err)
	for i := range all {
		if all[i].ID == id {
			return &all[i]
		}
	}
	return nil
}

func (s *volumeSuite) create(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		var last int64
		p := storage.VolumeParams{Ref: s.ref(t), Size: 3*MiB + 1, Sparse: sparse, Progress: func(done, total int64) {
			if done < last || done > total {
				t.Errorf("%d of %d done after %d", done, total, last)
			}
			last = done
		}}
		v := value(t, s.Source.Create(t.Context(), []storage.VolumeParams{p}))
		if v.Ref != p.Ref || v.Size != storage.RoundSize(p.Size) || v.Sparse != sparse || len(v.Attachments) != 0 || v.Problem != "" {
			t.Errorf("made %+v", v)
		}
		if sparse && v.Allocated > MiB || !sparse && v.Allocated < v.Size {
			t.Errorf("sparse %v: %d of %d bytes are allocated", sparse, v.Allocated, v.Size)
		}
		again := value(t, s.Source.Create(t.Context(), []storage.VolumeParams{p}))
		if again.Size != v.Size || again.Ref != v.Ref {
			t.Errorf("made again: %+v, first %+v", again, v)
		}
	}
	for _, size := range []int64{0, -1, storage.MinSize - 1, storage.MaxSize + 1} {
		wantKind(t, s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: s.ref(t), Size: size}})[0].Err, fault.Invalid)
	}
}

func (s *volumeSuite) attach(t *testing.T) {
	r := s.made(t, 4*MiB)
	first, again := s.attached(t, r, false), s.attached(t, r, false)
	if first != again || first.ReadOnly {
		t.Errorf("attached as %+v and again as %+v", first, again)
	}
	if v := s.find(t, s.Source, r.ID); len(v.Attachments) != 1 || v.Attachments[0] != first {
		t.Errorf("listed as %+v", v)
	}
	wantKind(t, s.Source.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r, ReadOnly: true}})[0].Err, fault.Conflict)
	if s.Real {
		write(t, first.Device, 2*MiB, "kept")
	}
	s.detached(t, r)
	readOnly := s.attached(t, r, true)
	if !readOnly.ReadOnly {
		t.Errorf("attached as %+v", readOnly)
	}
	if s.Real {
		if got := read(t, readOnly.Device, 2*MiB, 4); got != "kept" {
			t.Errorf("read %q", got)
		}
		if f, err := os.OpenFile(readOnly.Device, os.O_WRONLY, 0); err == nil {
			// Kernels differ in which of the calls they refuse.
			if _, err := f.WriteAt([]byte("lost"), 2*MiB); err == nil {
				t.Error("a read-only device can be written to")
			}
			_ = f.Close()
		}
	}
	s.detached(t, r)
	if v := s.find(t, s.Source, r.ID); v == nil || len(v.Attachments) != 0 || v.Problem != "" {
		t.Errorf("listed as %+v", v)
	}
	wantKind(t, s.Source.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: s.ref(t)}})[0].Err, fault.NotFound)
}

func (s *volumeSuite) gone(t *testing.T) {
	for _, r := range []storage.Ref{s.ref(t), s.made(t, MiB)} {
		for range 2 {
			s.remove(t, r)
		}
		if v := s.find(t, s.Source, r.ID); v != nil {
			t.Errorf("still there: %+v", v)
		}
	}
}

// evil holds invalid ids.
var evil = []string{"", ".", "..", "../up", "a/b", "/etc/passwd", "a\x00b", "-rf", "A", "ä", "a\nb", strings.Repeat("a", 64), "a.img", "%s"}

func (s *volumeSuite) traversal(t *testing.T) {
	stamp := storage.Stamp{Namespace: s.Namespace, UID: "u"}
	for _, id := range evil {
		r := storage.Ref{ID: id, Stamp: stamp}
		wantKind(t, s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: r, Size: MiB}})[0].Err, fault.Invalid)
		wantKind(t, s.Source.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r}})[0].Err, fault.Invalid)
		wantKind(t, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r}})[0], fault.Invalid)
		wantKind(t, s.Source.Destroy(t.Context(), []storage.Ref{r})[0], fault.Invalid)
		if g, ok := s.Source.(storage.VolumeGrower); ok {
			wantKind(t, g.GrowVolumes(t.Context(), []storage.GrowParams{{Ref: r, Size: MiB}})[0].Err, fault.Invalid)
		}
	}
}

func (s *volumeSuite) destroyAttached(t *testing.T) {
	r := s.made(t, MiB)
	s.attached(t, r, false)
	wantBusy(t, s.Source.Destroy(t.Context(), []storage.Ref{r})[0])
	if v := s.find(t, s.Source, r.ID); v == nil || len(v.Attachments) != 1 || v.Problem != "" {
		t.Errorf("listed as %+v", v)
	}
}

func (s *volumeSuite) otherStamp(t *testing.T) {
	r := s.made(t, MiB)
	other := r
	other.Stamp.UID = "another"
	wantKind(t, s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: other, Size: MiB}})[0].Err, fault.Conflict)
	wantKind(t, s.Source.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: other}})[0].Err, fault.Conflict)
	s.attached(t, r, false)
	wantKind(t, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: other}})[0], fault.Conflict)
	wantKind(t, s.Source.Destroy(t.Context(), []storage.Ref{other})[0], fault.Conflict)
	if v := s.find(t, s.Source, r.ID); v == nil || v.Ref != r || len(v.Attachments) != 1 {
		t.Errorf("listed as %+v", v)
	}
}

func (s *volumeSuite) namespaces(t *testing.T) {
	r := s.made(t, MiB)
	s.attached(t, r, false)
	theirs := storage.Ref{ID: r.ID, Stamp: storage.Stamp{Namespace: s.OtherNamespace, UID: r.Stamp.UID}}
	if v := s.find(t, s.Other, r.ID); v != nil {
		t.Errorf("the other agent sees %+v", v)
	}
	wantKind(t, s.Other.Create(t.Context(), []storage.VolumeParams{{Ref: theirs, Size: MiB}})[0].Err, fault.Conflict)
	wantKind(t, s.Other.Detach(t.Context(), []storage.DetachParams{{Ref: theirs}})[0], fault.Conflict)
	wantKind(t, s.Other.Destroy(t.Context(), []storage.Ref{theirs})[0], fault.Conflict)
	// A Ref of another namespace is an error of the caller.
	wantKind(t, s.Other.Destroy(t.Context(), []storage.Ref{r})[0], fault.Invalid)
	if v := s.find(t, s.Source, r.ID); v == nil || len(v.Attachments) != 1 {
		t.Errorf("listed as %+v", v)
	}
}

func (s *volumeSuite) list(t *testing.T) {
	want := map[string]bool{}
	for range 5 {
		want[s.made(t, MiB).ID] = true
	}
	r := s.made(t, MiB)
	want[r.ID] = true
	testRecords(t, s.Source, r, func() string { return s.find(t, s.Source, r.ID).Record })
	all, err := s.Source.List(t.Context())
	noError(t, err)
	for _, v := range all {
		if !want[v.ID] || v.Size != MiB || v.Stamp.Namespace != s.Namespace {
			t.Errorf("listed %+v", v)
		}
		delete(want, v.ID)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

func (s *volumeSuite) bulk(t *testing.T) {
	a, b := s.ref(t), s.ref(t)
	bad := storage.Ref{ID: "../x", Stamp: a.Stamp}
	made := s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: a, Size: MiB}, {Ref: bad, Size: MiB}, {Ref: b, Size: MiB}})
	if len(made) != 3 || made[0].Err != nil || made[2].Err != nil {
		t.Errorf("made %+v", made)
	}
	wantKind(t, made[1].Err, fault.Invalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.Source.Destroy(ended, []storage.Ref{a, b}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

func (s *volumeSuite) grow(t *testing.T) {
	g := s.Source.(storage.VolumeGrower)
	for _, sparse := range []bool{false, true} {
		r := s.ref(t)
		value(t, s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: r, Size: 2 * MiB, Sparse: sparse}}))
		a := s.attached(t, r, false)
		for range 2 {
			v := value(t, g.GrowVolumes(t.Context(), []storage.GrowParams{{Ref: r, Size: 5 * MiB}}))
			if v.Size != 5*MiB || !sparse && v.Allocated < v.Size || len(v.Attachments) != 1 || v.Attachments[0].Device != a.Device {
				t.Errorf("grown to %+v", v)
			}
		}
		if s.Real {
			write(t, a.Device, 5*MiB-4, "last")
		}
		wantKind(t, g.GrowVolumes(t.Context(), []storage.GrowParams{{Ref: r, Size: 4 * MiB}})[0].Err, fault.Invalid)
	}
	wantKind(t, g.GrowVolumes(t.Context(), []storage.GrowParams{{Ref: s.ref(t), Size: 4 * MiB}})[0].Err, fault.NotFound)
}

func (s *volumeSuite) tooLarge(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		r := s.ref(t)
		err := s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: r, Size: s.TooLarge, Sparse: sparse}})[0].Err
		var space *storage.SpaceError
		if !errors.As(err, &space) {
			t.Errorf("sparse %v: got %v", sparse, err)
		}
		if v := s.find(t, s.Source, r.ID); v != nil {
			t.Errorf("left %+v", v)
		}
	}
}

func (s *volumeSuite) busy(t *testing.T) {
	r := s.made(t, MiB)
	a := s.attached(t, r, false)
	release := s.Use(t, a.Device)
	err := s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r}})[0]
	if len(wantBusy(t, err)) == 0 {
		t.Errorf("%v names nobody", err)
	}
	if s.attached(t, r, false) != a {
		t.Error("the device is another one now")
	}
	release()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r}})[0]
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
