package networkprovisioner

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler/agent/reconcile"
	"hostler/sysctl"
)

// looks counts the looks at parameters.
type looks struct {
	rigParameters
	n atomic.Int64
}

func (l *looks) Satisfied([]sysctl.Setting) (bool, string) { l.n.Add(1); return true, "" }

// The worker polls while there is a parameter or a server to poll, and only
// then.
func TestDriftIsPolledOnlyWithParametersOrServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		parameters := &looks{}
		w := New(reconcile.Common{}, Options{Parameters: parameters})
		go w.pollDrift(ctx)
		in := func(what string, least, most int64) {
			t.Helper()
			before := parameters.n.Load()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := parameters.n.Load() - before; n < least || n > most {
				t.Errorf("%s: %d looks in a minute, want %d to %d", what, n, least, most)
			}
		}
		in("before the first pass", 0, 0)
		w.poll(nil, nil)
		in("without networks", 0, 0)
		w.poll([]sysctl.Setting{{}}, nil)
		in("with a parameter", 29, 30)
		w.poll(nil, nil)
		in("without networks again", 0, 1)
	})
}
