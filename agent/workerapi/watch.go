package workerapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"hostler/agent/client"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// silence is three heartbeats of the agent.
const silence = 45 * time.Second

// Watch first sends the ids of all objects, then the ids of changed objects.
// The channel is closed when ctx ends or the stream is lost.
func (s *Store) Watch(ctx context.Context, kinds ...string) (<-chan []state.ID, error) {
	lines, err := s.stream(ctx, "watch", url.Values{"kind": kinds})
	if err != nil {
		return nil, err
	}
	out := make(chan []state.ID)
	go func() {
		defer close(out)
		defer lines.stop()
		var offer []state.ID
		has := map[state.ID]bool{}
		for {
			var to chan []state.ID
			if offer != nil {
				to = out
			}
			select {
			case to <- offer:
				offer, has = nil, map[state.ID]bool{}
			case line, ok := <-lines.c:
				if !ok {
					return
				}
				if line.IDs == nil {
					continue
				}
				if offer == nil {
					offer = []state.ID{}
				}
				for _, id := range *line.IDs {
					if !has[id] {
						has[id] = true
						offer = append(offer, id)
					}
				}
			}
		}
	}()
	return out, nil
}

// WatchEvents signals that there are new events to query.
func (s *Store) WatchEvents(ctx context.Context) (<-chan struct{}, error) {
	lines, err := s.stream(ctx, "events/watch", nil)
	if err != nil {
		return nil, err
	}
	out := make(chan struct{})
	go func() {
		defer close(out)
		defer lines.stop()
		var to chan struct{}
		for {
			select {
			case to <- struct{}{}:
				to = nil
			case line, ok := <-lines.c:
				if !ok {
					return
				}
				if line.Events {
					to = out
				}
			}
		}
	}()
	return out, nil
}

// stream is a stream of lines. c is closed when the stream ends for any reason.
type stream struct {
	c    chan line
	stop context.CancelFunc
}

func (s *Store) stream(ctx context.Context, path string, query url.Values) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	resp, err := s.c.OpenStream(ctx, http.MethodGet, s.path+path, query, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &stream{c: make(chan line), stop: cancel}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), client.MaxLine)
	// The first line confirms that the agent serves the stream. If the first
	// line is a problem, this problem is the error of the call.
	first, err := readLine(lines)
	if err != nil {
		cancel()
		_ = resp.Body.Close()
		return nil, client.CallError(ctx, err)
	}
	go w.read(ctx, resp.Body, lines, first, s.silenceLimit)
	return w, nil
}

// read forwards the lines to c. It ends the stream if no line comes within
// limit.
func (w *stream) read(ctx context.Context, body io.Closer, lines *bufio.Scanner, first line, limit time.Duration) {
	defer close(w.c)
	defer body.Close()
	silent := time.AfterFunc(limit, w.stop)
	defer silent.Stop()
	for line := first; ; {
		select {
		case w.c <- line:
		case <-ctx.Done():
			return
		}
		var err error
		if line, err = readLine(lines); err != nil {
			return
		}
		silent.Reset(limit)
	}
}

func readLine(lines *bufio.Scanner) (line, error) {
	var line line
	if !lines.Scan() {
		err := lines.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return line, err
	}
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
		return line, fault.New(fault.Transient, "cannot read the agent's stream: %w", err)
	}
	if line.Problem != nil {
		return line, line.Problem.Fault()
	}
	return line, nil
}
