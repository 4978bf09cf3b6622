package api

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A request without its body is answered and closed, at whatever stage it is
// refused.
// Attack: API
func TestABodyThatNeverComesHoldsNothing(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBench(t, func(o *Options) { o.Clock = func() time.Time { return now } })
	b.bodyTime = 300 * time.Millisecond
	b.listen(t)
	for _, path := range []string{filepath.Dir(filepath.Dir(b.socket)), filepath.Dir(b.socket), b.socket} {
		if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // anybody may knock here
			t.Fatal(err)
		}
	}
	for range int(parts[share(roleReader)].burst) {
		b.rates.allow(caller{peerCredentials: peer(2001, readerGID), role: roleReader})
	}
	root := []uint32{0, 0}
	for what, c := range map[string]struct {
		line, host string
		who        []uint32
		want       int
	}{
		"no such path":    {"POST /v1/nothing", "hostler", root, http.StatusNotFound},
		"another method":  {"DELETE /v1/version", "hostler", root, http.StatusMethodNotAllowed},
		"another host":    {"POST /v1/apply", "elsewhere", root, http.StatusMisdirectedRequest},
		"a body for GET":  {"GET /v1/version", "hostler", root, http.StatusRequestTimeout},
		"a route of ours": {"POST /v1/apply", "hostler", root, http.StatusRequestTimeout},
		"a stranger":      {"POST /v1/apply", "hostler", []uint32{2000, 2000}, http.StatusForbidden},
		"without a right": {"POST /v1/apply", "hostler", []uint32{2000, readerGID}, http.StatusForbidden},
		"too often":       {"POST /v1/apply", "hostler", []uint32{2001, readerGID}, http.StatusTooManyRequests},
	} {
		t.Run(what, func(t *testing.T) {
			conn := dialAs(t, b.socket, c.who[0], c.who[1], c.who[1])
			_ = conn.SetDeadline(time.Now().Add(bodyTimeout / 2))
			if _, err := io.WriteString(conn, c.line+" HTTP/1.1\r\nHost: "+c.host+"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.want || !resp.Close {
				t.Errorf("status %d, want %d; closes: %v", resp.StatusCode, c.want, resp.Close)
			}
			if p, err := readProblem(resp); err != nil || p.Status != c.want {
				t.Errorf("%+v, %v", p, err)
			}
			if _, err := r.ReadByte(); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
				t.Errorf("the connection stays: %v", err)
			}
		})
	}
}
