//go:build integration

package blockdevice_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler/storage"
	"hostler/storage/blockdevice"
	"hostler/storage/loop"
)

// A signal announces a new device, which List then returns; the channel closes
// with its context.
func TestChangesWake(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, err := blockdevice.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	volumes := loop.New(loop.Options{Dir: filepath.Join(t.TempDir(), "volumes"), Namespace: "one"})
	r := storage.Ref{ID: "data", Stamp: storage.Stamp{Namespace: "one", UID: "u"}}
	if err := volumes.Create(ctx, []storage.VolumeParams{{Ref: r, Size: 1 << 20}})[0].Err; err != nil {
		t.Fatal(err)
	}
	attached := volumes.Attach(ctx, []storage.VolumeAttachParams{{Ref: r}})[0]
	if attached.Err != nil {
		t.Fatal(attached.Err)
	}
	name := filepath.Base(attached.Value.Device)
	deadline := time.After(10 * time.Second)
	for listed := false; !listed; {
		select {
		case <-changes:
		case <-deadline:
			t.Fatalf("no signal after which %s is listed", name)
		}
		all, err := blockdevice.Host{}.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			listed = listed || d.Name == name && d.Type == "loop" && d.Size == 1<<20 && filepath.Base(d.Backing) == "data.img" && !d.InUse && len(d.Signatures) == 0
		}
	}
	if err := volumes.Detach(ctx, []storage.DetachParams{{Ref: r}})[0]; err != nil {
		t.Error(err)
	}
	if err := volumes.Destroy(ctx, []storage.Ref{r})[0]; err != nil {
		t.Error(err)
	}
	cancel()
	for deadline := time.After(10 * time.Second); ; {
		select {
		case _, open := <-changes:
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("the channel stays open")
		}
	}
}

// S40: only usable devices are listed, and List fails rather than returning a
// part.
func TestListSkipsAndNames(t *testing.T) {
	all, err := blockdevice.Host{Sys: t.TempDir()}.List(t.Context())
	if err == nil || all != nil {
		t.Errorf("without sysfs: %v, %v", all, err)
	}
	all, err = blockdevice.Host{}.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if _, err := os.Stat(d.Path); err != nil || d.Size == 0 || d.Type == "loop" && d.Backing == "" {
			t.Errorf("%+v", d)
		}
	}
}
