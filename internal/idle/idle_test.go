package idle

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUnchangedFiles(t *testing.T) {
	const smaps = `00400000-011b6000 r-xp 00000000 fe:00 10023585                           /usr/sbin/hostlerd
Size:              14040 kB
Rss:               12512 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
011b6000-01e9c000 r--p 00db6000 fe:00 10023585                           /usr/sbin/hostlerd (deleted)
Anonymous:             0 kB
Swap:                  0 kB
01e9b000-01e9c000 r--p 01a9b000 fe:00 10023585                           /usr/sbin/hostlerd
Anonymous:             0 kB
Swap:                  4 kB
01e9c000-01e9d000 r--p 01a9c000 fe:00 10023585                           /usr/sbin/hostlerd
Anonymous:             4 kB
Swap:                  0 kB
01e9d000-01f25000 rw-p 01a9d000 fe:00 10023585                           /usr/sbin/hostlerd
Anonymous:             0 kB
Swap:                  0 kB
7fbccf800000-7fbccfa00000 r--p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
7fbccf800000-7fbccf808000 r--s 00000000 fe:00 12                         /var/lib/hostler/state.db-shm
Anonymous:             0 kB
Swap:                  0 kB
7ffd0000-7ffd2000 r-xp 00000000 00:00 0                                  [vdso]
Anonymous:             0 kB
Swap:                  0 kB
`
	want := []mapping{{0x400000, 0x11b6000}, {0x11b6000, 0x1e9c000}}
	if found := unchangedFiles(smaps); !slices.Equal(found, want) {
		t.Errorf("found %x", found)
	}
}

// A process that was busy and grew is small again soon after its work, and its
// program still runs.
func TestAnIdleProcessIsSmall(t *testing.T) {
	r := New(slog.New(slog.DiscardHandler))
	r.quiet = 50 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	const burst = 64 << 20
	for range 2 {
		work := make([]byte, burst)
		for i := range work {
			work[i] = 1
		}
		big, err := resident()
		if err != nil || big < burst {
			t.Fatalf("%d bytes are resident: %v", big, err)
		}
		r.Busy()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			now, err := resident()
			if err != nil {
				t.Fatal(err)
			}
			if now < big-burst/2 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are still resident of %d", now, big)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
