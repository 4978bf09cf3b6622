package brokertest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"hostler/containerbroker"
)

func TestFakeConforms(t *testing.T) {
	f := New()
	var loops atomic.Int64
	f.NoImage("lxd:conform-no-such-image")
	Run(t, Harness{
		Broker: f, Other: f, Namespace: "hostler", OtherNamespace: "other", Image: "tiny", Address: true,
		Bridge: "br-test",
		Folder: func(t *testing.T) string { return t.TempDir() },
		Device: func(*testing.T) string { return fmt.Sprint("/dev/loop", loops.Add(1)) },
		AddForeign: func(t *testing.T, name string) {
			f.Add(containerbroker.Instance{Name: name, Status: containerbroker.StatusStopped})
			t.Cleanup(func() { f.Remove(name) })
		},
		Detach: func(_ *testing.T, name, disk string) { f.Unplug(name, containerbroker.FieldDisk(disk)) },
		Die:    func(_ *testing.T, name string) { f.Kill(name) },
		Halve: func(_ *testing.T, name string) {
			f.Change(name, func(i *containerbroker.Instance) { i.Status = containerbroker.StatusError })
		},
		BreakList:  func(*testing.T) { f.Fail(List, "", 1, errors.New("cut short")) },
		LoseCreate: func(*testing.T) { f.LoseReplies(Create, "", 1, errors.New("lost")) },
	})
	if names := f.Names(); len(names) != 0 {
		t.Errorf("the suite left %v", names)
	}
}
