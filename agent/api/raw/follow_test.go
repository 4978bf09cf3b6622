package raw

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// The pause between two looks follows what a look costs: a watch of many machines must
// not take the time in which they are made.
func TestFollowSpacesSlowLooks(t *testing.T) {
	for _, c := range []struct {
		pause, look time.Duration
		want        int // looks in ten seconds
	}{
		{100 * time.Millisecond, 0, 100},
		{100 * time.Millisecond, 5 * time.Millisecond, 95},
		{100 * time.Millisecond, 25 * time.Millisecond, 19},
		{100 * time.Millisecond, time.Second, 4},
		{0, 250 * time.Millisecond, 40}, // lines that nothing joins are sent at once
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			changes := make(chan bool)
			go func() {
				for {
					select {
					case changes <- true:
					case <-ctx.Done():
						return
					}
				}
			}()
			looks := 0
			Follow(ctx, Streams{Heartbeat: time.Hour, Stop: context.Background()}, NewLines(httptest.NewRecorder()), changes, c.pause, func(bool) error {
				looks++
				time.Sleep(c.look)
				return nil
			})
			if looks < c.want-1 || looks > c.want+1 {
				t.Errorf("looks of %s with a pause of %s: %d in ten seconds, want %d", c.look, c.pause, looks, c.want)
			}
		})
	}
}
