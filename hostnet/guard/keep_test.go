package guard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Keep sleeps while no change is armed. It sees a change as soon as this process
// arms it, and reports its end within look.
func TestKeepSleepsUntilAChangeIsArmed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Dir: dir})
		ctx, cancel := context.WithCancel(t.Context())
		kept := make(chan error, 1)
		go func() { kept <- g.Keep(ctx) }()
		synctest.Wait() // the first look
		time.Sleep(time.Hour)
		cp := &checkpoint{Version: checkpointVersion, ID: "one", Phase: Changing}
		if err := g.write(cp); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := g.remove(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(look)
		synctest.Wait()
		select {
		case <-g.Ends():
		default:
			t.Error("the end of the change was not reported")
		}
		cancel()
		if err := <-kept; err != nil {
			t.Error(err)
		}
	})
}
