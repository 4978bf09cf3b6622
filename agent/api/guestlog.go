package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"hostler/agent/api/raw"
	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// maxLog bounds the part of a console log in which the agent looks for the last
// lines or for new text, in bytes. This part is the end of the log.
const maxLog = 8 << 20

// followDelay is the pause between two reads of a followed log. The agent polls
// because no hypervisor reports console output by events.
const followDelay = time.Second

func logOptions(r *http.Request) (client.LogOptions, error) {
	o := client.LogOptions{Tail: -1}
	q, err := raw.Query(r, "tail", "follow")
	if err != nil {
		return o, err
	}
	if text := q.Get("tail"); text != "" {
		if o.Tail, err = strconv.Atoi(text); err != nil || o.Tail < 0 {
			return o, fault.New(fault.Invalid, "cannot show the last %q lines: give a number", fault.Clip(text, 32))
		}
	}
	if text := q.Get("follow"); text != "" {
		if o.Follow, err = strconv.ParseBool(text); err != nil {
			return o, fault.New(fault.Invalid, "cannot follow %q: use true or false", fault.Clip(text, 32))
		}
	}
	return o, nil
}

func (s *Server) guestLog(w http.ResponseWriter, r *http.Request) {
	o, err := logOptions(r)
	var t spec.ContainerType
	var instance string
	if err == nil {
		t, instance, err = s.instanceOf(r.Context(), r.PathValue("name"))
	}
	var log io.ReadCloser
	if err == nil {
		log, err = s.o.Service.Guests.Log(r.Context(), t, instance)
	}
	if err != nil {
		raw.WriteProblem(w, raw.ProblemOf(err))
		return
	}
	defer func() { _ = log.Close() }()
	stop := context.AfterFunc(r.Context(), func() { _ = log.Close() })
	defer stop()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := flushing{w, http.NewResponseController(w)}
	if o.Tail < 0 && !o.Follow {
		_, _ = io.Copy(out, log)
		return
	}
	text, err := lastPart(log)
	if err == nil {
		_, err = out.Write(lastLines(text, o.Tail))
	}
	if err == nil && o.Follow {
		s.followLog(r.Context(), out, t, instance, text)
	}
}

// followLog writes new text of the log until the request ends or the instance
// is gone. seen is the log that the client has already got.
func (s *Server) followLog(ctx context.Context, out io.Writer, t spec.ContainerType, instance string, seen []byte) {
	tick := time.NewTicker(followDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stop.Done():
			return
		case <-tick.C:
		}
		log, err := s.o.Service.Guests.Log(ctx, t, instance)
		if fault.Is(err, fault.NotFound) {
			return
		}
		if err != nil {
			continue // the hypervisor may answer the next read
		}
		text, err := lastPart(log)
		_ = log.Close()
		if err != nil {
			continue
		}
		if more := after(seen, text); len(more) > 0 {
			if _, err := out.Write(more); err != nil {
				return
			}
		}
		seen = text
	}
}

// lastPart reads a log and returns its last maxLog bytes.
func lastPart(log io.Reader) ([]byte, error) {
	var text bytes.Buffer
	for {
		n, err := io.CopyN(&text, log, maxLog)
		if over := text.Len() - maxLog; over > 0 {
			text.Next(over)
		}
		if n < maxLog || err != nil {
			if err != nil && err != io.EOF { //nolint:errorlint // CopyN returns it as it is
				return nil, fmt.Errorf("cannot read the console log: %w", err)
			}
			return text.Bytes(), nil
		}
	}
}

// lastLines returns the last n lines of text, or all lines if n is negative.
func lastLines(text []byte, n int) []byte {
	if n < 0 {
		return text
	}
	at := len(text)
	if n > 0 && at > 0 && text[at-1] == '\n' {
		at--
	}
	for ; n > 0 && at >= 0; n-- {
		at = bytes.LastIndexByte(text[:at], '\n')
	}
	return text[at+min(1, len(text)-at):]
}

// after returns the part of text that follows seen, or all of text if it does
// not contain the end of seen. The beginning of seen may be missing in text,
// because text is only the end of a long log.
func after(seen, text []byte) []byte {
	if bytes.HasPrefix(text, seen) {
		return text[len(seen):]
	}
	end := seen[max(0, len(seen)-4096):]
	if at := bytes.LastIndex(text, end); at >= 0 && len(end) > 0 {
		return text[at+len(end):]
	}
	return text
}
