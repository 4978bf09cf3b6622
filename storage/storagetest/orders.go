package storagetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"hostler/internal/fault"
	"hostler/storage"
)

// anyOrder compares a source with a model over random orders of calls.
func (s *volumeSuite) anyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s.next++
		r := storage.Ref{ID: fmt.Sprintf("p%d", s.next), Stamp: storage.Stamp{Namespace: s.Namespace, UID: "u"}}
		defer s.remove(t, r)
		exists, attached := false, false
		for range rapid.IntRange(1, 8).Draw(rt, "calls") {
			switch call := rapid.SampledFrom([]string{"create", "attach", "detach", "destroy"}).Draw(rt, "call"); call {
			case "create":
				noError(rt, s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: r, Size: MiB, Sparse: true}})[0].Err)
				exists = true
			case "attach":
				err := s.Source.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r}})[0].Err
				if exists {
					noError(rt, err)
				} else if !fault.Is(err, fault.NotFound) {
					rt.Errorf("attached what is not there: %v", err)
				}
				attached = exists
			case "detach":
				noError(rt, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r}})[0])
				attached = false
			case "destroy":
				err := s.Source.Destroy(t.Context(), []storage.Ref{r})[0]
				var busy *storage.BusyError
				if errors.As(err, &busy) != attached || err != nil && !attached {
					rt.Errorf("attached %v, destroyed with %v", attached, err)
				}
				exists = attached
			}
			v := s.find(t, s.Source, r.ID)
			if (v != nil) != exists || v != nil && (len(v.Attachments) == 1) != attached {
				rt.Fatalf("exists %v, attached %v, listed %+v", exists, attached, v)
			}
		}
	})
}

func (s *volumeSuite) concurrent(t *testing.T) {
	var refs []storage.Ref
	for range 8 {
		refs = append(refs, s.ref(t))
	}
	var wg sync.WaitGroup
	for range 3 { // three goroutines work on each volume
		for _, r := range refs {
			wg.Go(func() {
				if err := s.Source.Create(t.Context(), []storage.VolumeParams{{Ref: r, Size: MiB}})[0].Err; err != nil {
					t.Error(err)
					return
				}
				if err := s.Source.Attach(t.Context(), []storage.VolumeAttachParams{{Ref: r}})[0].Err; err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	devices := map[string]bool{}
	for _, r := range refs {
		v := s.find(t, s.Source, r.ID)
		if v == nil || len(v.Attachments) != 1 || devices[v.Attachments[0].Device] {
			t.Errorf("%s is listed as %+v", r.ID, v)
			continue
		}
		devices[v.Attachments[0].Device] = true
	}
}

func (s *filesystemSuite) anyOrder(t *testing.T) {
	r := s.ref(t)
	p := s.Params(t, r)
	rapid.Check(t, func(rt *rapid.T) {
		defer func() {
			noError(rt, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r}})[0])
			noError(rt, s.Source.Destroy(t.Context(), []storage.Ref{r})[0])
		}()
		exists, mounted := false, false
		for range rapid.IntRange(1, 6).Draw(rt, "calls") {
			switch call := rapid.SampledFrom([]string{"create", "attach", "detach", "destroy"}).Draw(rt, "call"); call {
			case "create":
				if !mounted { // a mounted device is not looked at again
					noError(rt, s.Source.Create(t.Context(), []storage.FilesystemParams{p})[0].Err)
					exists = true
				}
			case "attach":
				err := s.Source.Attach(t.Context(), []storage.FilesystemAttachParams{s.at(t, r, s.path(r), false)})[0].Err
				if exists {
					noError(rt, err)
				} else if !fault.Is(err, fault.NotFound) {
					rt.Errorf("attached what is not there: %v", err)
				}
				mounted = exists
			case "detach":
				noError(rt, s.Source.Detach(t.Context(), []storage.DetachParams{{Ref: r, Path: s.path(r)}})[0])
				mounted = false
			case "destroy":
				err := s.Source.Destroy(t.Context(), []storage.Ref{r})[0]
				var busy *storage.BusyError
				if errors.As(err, &busy) != mounted || err != nil && !mounted {
					rt.Errorf("mounted %v, destroyed with %v", mounted, err)
				}
				exists = mounted
			}
			f := s.find(rt, s.Source, r.ID)
			if (f != nil) != exists || f != nil && (len(f.Attachments) == 1) != mounted {
				rt.Fatalf("exists %v, mounted %v, listed %+v", exists, mounted, f)
			}
		}
	})
}
