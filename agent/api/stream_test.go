package api

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

var errEnough = errors.New("enough")

// watchMachines calls fn with the rows of machines after every change of them.
func watchMachines(ctx context.Context, c *client.Client, names []string, fn func([]client.Machine) error) error {
	return c.WatchRows(ctx, []string{"machines"}, names, func(_ string, text json.RawMessage) error {
		var rows []client.Machine
		return errors.Join(json.Unmarshal(text, &rows), fn(rows))
	})
}

func TestWatchMachinesSendsFullRowsAfterEveryChange(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	b.machine("one", state.Alive, lxdMachine("web"), spec.MachineStatus{})
	b.machine("other", state.Alive, lxdMachine("web"), running("other"))
	var seen []string
	err := watchMachines(t.Context(), c, []string{"one"}, func(rows []client.Machine) error {
		word := "gone"
		if len(rows) == 1 {
			word = rows[0].Name + " " + string(rows[0].Status)
		}
		seen = append(seen, word)
		switch len(seen) {
		case 1:
			b.machine("one", state.Alive, lxdMachine("web"), running("one"))
		case 2:
			_, err := b.store.Write(t.Context(), state.Atomic, state.Write{ID: id(spec.KindMachine, "one"), Revision: state.AnyRevision, Delete: true})
			return err
		case 3:
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || !slices.Equal(seen, []string{"one pending", "one running", "gone"}) {
		t.Errorf("%v, %v", seen, err)
	}
	eventually(t, "the stream is given back", func() bool { return b.streamsInUse() == 0 })
}

// A reader names a kind many times in one request.
// Attack: API
func TestWatchRowsReadsEachKindOnce(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	lines := 0
	err := c.WatchRows(t.Context(), slices.Repeat([]string{"machines"}, 300), nil, func(string, json.RawMessage) error {
		if lines++; lines == 2 {
			return errEnough
		}
		b.machine("one", state.Alive, lxdMachine("web"), spec.MachineStatus{})
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if b.store.lists > 20 {
		t.Errorf("%d listings for two lines", b.store.lists)
	}
}

func (b *bench) streamsInUse() int {
	b.streams.mu.Lock()
	defer b.streams.mu.Unlock()
	n := 0
	for _, of := range b.streams.all {
		n += of
	}
	return n
}

// A single stream follows the rows of several kinds: first all rows, then only
// those of changed kinds. Images are polled.
func TestWatchRowsSendsTheKindThatChanged(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	b.machine("one", state.Alive, lxdMachine("web"), spec.MachineStatus{})
	volume := func(s spec.StorageState) {
		b.store.put(id(spec.KindVolume, "data"), state.Alive, spec.VolumeRecord{Header: spec.Header{Declaration: "web"}}, spec.StorageStatus{State: s})
	}
	var seen []string
	err := c.WatchRows(t.Context(), []string{"volumes", "machines", "images"}, nil, func(kind string, raw json.RawMessage) error {
		var rows []struct{ Name, Reference, Status string }
		if err := json.Unmarshal(raw, &rows); err != nil {
			return err
		}
		words := []string{kind}
		for _, r := range rows {
			words = append(words, r.Name+r.Reference, r.Status)
		}
		switch seen = append(seen, strings.Join(words, " ")); len(seen) {
		case 3:
			volume(spec.StorageAttached)
		case 4:
			volume(spec.StorageError)
		case 5:
			b.host.mu.Lock()
			b.host.images["mine/1"] = client.Image{Reference: "mine/1"}
			b.host.mu.Unlock()
		case 6:
			return errEnough
		}
		return nil
	})
	want := []string{"volumes", "machines one pending", "images", "volumes data attached", "volumes data error", "images mine/1 "}
	if !errors.Is(err, errEnough) || !slices.Equal(seen, want) {
		t.Errorf("%q, %v", seen, err)
	}
	b.machine("two", state.Alive, lxdMachine("web"), spec.MachineStatus{})
	err = c.WatchRows(t.Context(), []string{"machines"}, []string{"two", "absent"}, func(_ string, raw json.RawMessage) error {
		if strings.Contains(string(raw), `"one"`) || !strings.Contains(string(raw), `"two"`) {
			t.Errorf("the rows of two: %s", raw)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
	faulttest.Want(t, c.WatchRows(t.Context(), []string{"machine"}, nil, nil), fault.Invalid, `"machine"`, "machines")
	faulttest.Want(t, c.WatchRows(t.Context(), nil, nil, nil), fault.Invalid, "no kind is named")
}

func TestWatchEventsStartsWhereItIsTold(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	record := func(name, message string) {
		_ = b.store.Record(t.Context(), state.Event{Object: id(spec.KindMachine, name), Message: message})
	}
	record("one", "first")
	record("two", "second")
	record("one", "third")
	var seen []string
	err := c.WatchEvents(t.Context(), 1, "machine/one", func(e client.Event) error {
		seen = append(seen, e.Message)
		if len(seen) == 1 {
			record("two", "fourth")
			record("one", "fifth")
			return nil
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) || !slices.Equal(seen, []string{"third", "fifth"}) {
		t.Errorf("%v, %v", seen, err)
	}
}

func TestALostWatchIsAnErrorAndNotAnEmptyWorld(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	b.machine("one", state.Alive, lxdMachine("web"), running("one"))
	err := watchMachines(t.Context(), c, nil, func(rows []client.Machine) error {
		if len(rows) != 1 {
			t.Errorf("rows %+v", rows)
		}
		b.store.cutWatches()
		return nil
	})
	faulttest.Want(t, err, fault.Transient, "the watch was lost")
}

func TestAnIdleStreamStaysOpenAndEndsWithItsClient(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	first := make(chan struct{}, 1)
	go func() {
		ended <- watchMachines(ctx, c, nil, func([]client.Machine) error { first <- struct{}{}; return nil })
	}()
	<-first
	eventually(t, "the stream is counted", func() bool { return b.streamsInUse() == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	eventually(t, "the server lets go", func() bool { return b.streamsInUse() == 0 })
}

func TestAStoppingAgentSaysSo(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	err := watchMachines(t.Context(), c, nil, func([]client.Machine) error { b.stopNow(); return nil })
	faulttest.Want(t, err, fault.Transient, "the agent is stopping")
}

// A machine that failed for lack of an image is retried when a user imports or
// builds the image, whichever process provisions; other machines are not (P43).
func TestANewImageRetriesWhatLackedIt(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	failed := func(kind fault.Kind) spec.MachineStatus {
		return spec.MachineStatus{State: spec.MachineError, Attempts: spec.Attempts{Count: 1, ErrorKind: string(kind)}}
	}
	other := lxdMachine("web")
	other.Machine.Image = "mine/1"
	made := running("made")
	made.Attempts.ErrorKind = string(fault.Transient)
	b.machine("lacks", state.Alive, lxdMachine("web"), failed(fault.NotFound))
	b.machine("waits", state.Alive, lxdMachine("web"), failed(fault.Transient))
	b.machine("broken", state.Alive, lxdMachine("web"), failed(fault.NeedsOperator))
	b.machine("other", state.Alive, other, failed(fault.NotFound))
	b.machine("made", state.Alive, lxdMachine("web"), made)
	b.machine("new", state.Alive, lxdMachine("web"), spec.MachineStatus{})
	b.machine("dying", state.Dying, lxdMachine("web"), failed(fault.NotFound))
	retried := func() string {
		var names []string
		for _, name := range []string{"lacks", "waits", "broken", "other", "made", "new", "dying"} {
			if _, record := b.record(t, name); record.RetryRequest > 0 {
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	if _, err := c.ImageBuild(t.Context(), "bad/1", "", nil); err == nil || retried() != "" {
		t.Errorf("a build that failed: %v, retried are %q", err, retried())
	}
	// Each attempt of a machine asks for its image, so this is no reason for another.
	if _, err := b.worker(t, "lxd").EnsureImage(t.Context(), "debian/12", func(string, int) {}); err != nil || retried() != "" {
		t.Errorf("an image that a worker needs: %v, retried are %q", err, retried())
	}
	if _, err := c.ImageBuild(t.Context(), "debian/12", "", nil); err != nil || retried() != "lacks waits" {
		t.Errorf("a build: %v, retried are %q", err, retried())
	}
	if _, err := c.ImageImport(t.Context(), "/srv/x.tar.xz", "mine/1", "", nil); err != nil || retried() != "lacks waits other" {
		t.Errorf("an import: %v, retried are %q", err, retried())
	}
}

func TestImageWorkTellsItsProgress(t *testing.T) {
	b := newBench(t)
	c := b.listen(t)
	ctx := t.Context()
	var told []string
	img, err := c.ImageBuild(ctx, "debian/12", "", func(m string, percent int) { told = append(told, m) })
	if err != nil || img.Reference != "debian/12" || img.Format != "lxd" || !slices.Equal(told, []string{"building debian/12"}) {
		t.Errorf("%+v, %v, %v", img, told, err)
	}
	if img, err = c.ImageBuild(ctx, "debian/12", spec.KVM, nil); err != nil || img.Format != "kvm" {
		t.Errorf("for KVM: %+v, %v", img, err)
	}
	_, err = c.ImageBuild(ctx, "debian/12", "lxq", nil)
	faulttest.Want(t, err, fault.Invalid, "neither lxd nor incus nor kvm nor lxc")
	_, err = c.ImageBuild(ctx, "bad/1", "", nil)
	faulttest.Want(t, err, fault.NeedsOperator, "no such release")
	img, err = c.ImageImport(ctx, "/srv/x.tar.xz", "mine", "abc", nil)
	if err != nil || img.Digest != "abc" {
		t.Errorf("%+v, %v", img, err)
	}
	_, err = c.ImageImport(ctx, "x.tar.xz", "mine", "", nil)
	faulttest.Want(t, err, fault.Invalid, "absolute path")
	b.host.notices = []string{"kvm, say, is down", "so is lxd: “no”"}
	rows, notices, err := c.Images(ctx)
	if err != nil || len(rows) != 2 || !slices.Equal(notices, b.host.notices) {
		t.Errorf("%+v, %q, %v", rows, notices, err)
	}
	if err := c.ImageDelete(ctx, "mine"); err != nil {
		t.Error(err)
	}
	faulttest.Want(t, c.ImageDelete(ctx, "mine"), fault.NotFound)
	_, err = c.ImageBuild(ctx, strings.Repeat("x", maxBody), "", nil)
	faulttest.Want(t, err, fault.Invalid, "larger than")
}
