package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// serviceManager returns the socket on which the watchdog is fed, about every
// 30 ms.
func serviceManager(t *testing.T) *net.UnixConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "90000")
	t.Setenv("WATCHDOG_PID", "")
	return l
}

func fed(t *testing.T, l *net.UnixConn, within time.Duration) bool {
	t.Helper()
	if err := l.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := l.Read(make([]byte, 64))
	return err == nil
}

func TestTheWatchdogIsFedOnlyByAnAgentThatAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answers func(context.Context) error
		want    bool
	}{
		"answers":      {func(context.Context) error { return nil }, true},
		"no question":  {nil, true},
		"never":        {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, false},
		"with a fault": {func(context.Context) error { return errors.New("silence") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := serviceManager(t)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- keepAlive(c.answers, slog.New(slog.DiscardHandler))(ctx) }()
			limit := 10 * time.Second
			if !c.want {
				limit = 500 * time.Millisecond
			}
			if got := fed(t, l, limit); got != c.want {
				t.Errorf("fed: %v", got)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
