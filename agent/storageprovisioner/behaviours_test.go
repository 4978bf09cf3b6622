package storageprovisioner

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/storage"
)

// S2: while the host's configuration cannot be read, nothing is done: the
// configuration may say to leave undeclared storage.
func TestNothingIsDoneBeforeTheConfigurationIsRead(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.pass()
	r.volume("more", spec.Volume{})
	r.life(spec.KindVolume, "data", state.Dying)
	host := state.ID{Kind: spec.KindHost, Name: spec.HostName}
	r.put(host, "no record", state.Alive)
	calls := len(r.host.calls)
	r.restart()
	if _, err := r.w.converge(t.Context()); err == nil || !strings.Contains(err.Error(), "host") || len(r.host.calls) != calls {
		t.Errorf("%v, done: %v", err, r.host.calls[calls:])
	}
	r.put(host, spec.HostRecord{Config: spec.Config{Namespace: "test", Harvest: "none"}}, state.Alive)
	r.pass()
	equal(t, r.host.state(), "volume data 1073741824 false\nvolume more 1073741824 false")
}

// passes receives every pass; the worker waits until the test takes it.
type passes chan struct{}

func (p passes) Pass(time.Duration, error)              { p <- struct{}{} }
func (p passes) Operation(string, time.Duration, error) {}

// S3: a change of declarations or of the host's block devices causes a pass.
func TestChangesAreSeen(t *testing.T) {
	r := newRig(t)
	r.store.changed = make(chan []state.ID)
	devices, looked := make(chan struct{}), make(passes)
	r.w.Devices = func(context.Context) (<-chan struct{}, error) { return devices, nil }
	r.w.Metrics = looked
	var later atomic.Int64
	r.w.Now = func() time.Time { return t0.Add(time.Duration(later.Load())) }
	ended := make(chan error, 1)
	go func() { ended <- r.w.Run(t.Context()) }()
	<-looked
	r.volume("data", spec.Volume{})
	r.store.changed <- []state.ID{{Kind: spec.KindVolume, Name: "data"}}
	<-looked
	if r.status(spec.KindVolume, "data").State != spec.StorageDetached {
		t.Errorf("%+v", r.status(spec.KindVolume, "data"))
	}
	later.Store(int64(time.Minute)) // later than the echo of the worker's own changes
	devices <- struct{}{}
	<-looked
	close(devices)
	close(r.store.changed)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "watch") {
		t.Errorf("ended with %v", err)
	}
}

// S14: a volume that is attached when created is not attached again.
func TestCreateThatAttaches(t *testing.T) {
	r := newRig(t)
	r.host.attaches = true
	r.volume("data", spec.Volume{})
	r.machine("web", spec.Attachment{Volume: "data"})
	r.pass()
	equal(t, strings.Join(r.host.did(), ", "), "create volume/data")
	equal(t, r.sources(), "volume/data web /dev/loop77")
}

// S15: an entity without a source in this agent is neither created nor
// attached, and does not delay other entities.
func TestProviderWithoutASource(t *testing.T) {
	r := newRig(t)
	r.volume("far", spec.Volume{Provider: "elsewhere"})
	r.volume("near", spec.Volume{})
	r.machine("web", spec.Attachment{Volume: "far"})
	r.pass()
	equal(t, strings.Join(r.host.did(), ", "), "create volume/near")
	if s := r.status(spec.KindVolume, "far"); !strings.Contains(s.Message, `has no volume provider "elsewhere"`) {
		t.Errorf("%+v", s)
	}
}

// S21: if results cannot be written, the pass ends with an error, and nothing
// is created twice.
func TestResultsThatCannotBeWritten(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.store.refuses = errors.New("the disk is full")
	if _, err := r.w.converge(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
	r.store.refuses = nil
	r.restart()
	r.pass()
	r.pass()
	equal(t, strings.Join(r.host.did(), ", "), "create volume/data")
	if s := r.status(spec.KindVolume, "data"); s.State != spec.StorageDetached {
		t.Errorf("%+v", s)
	}
}

// S26: a source gets the stamp and the record of each object.
func TestSourcesAreToldWhose(t *testing.T) {
	r := newRig(t)
	r.volume("data", spec.Volume{})
	r.filesystem("logs", spec.Filesystem{Provider: "rootfs"})
	r.pass()
	v, f := r.host.volumes["data"], r.host.filesystems["logs"]
	if want := (storage.Stamp{Namespace: "test", UID: "uid-1"}); v.Stamp != want || !strings.Contains(v.Record, `"provider":"loop"`) {
		t.Errorf("%+v", v)
	}
	if want := (storage.Stamp{Namespace: "test", UID: "uid-2"}); f.Stamp != want || !strings.Contains(f.Record, `"provider":"rootfs"`) {
		t.Errorf("%+v", f)
	}
}
