//go:build integration

package machines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/hosttest"
	"hostler/tests/harness"
)

// readersGID is the group hostler of the agents of these tests.
const readersGID = 61900

// readersMayConnect gives an agent the groups of the package, in a mount
// namespace of its own, and lets readers reach its socket.
func readersMayConnect(t *testing.T, a *harness.Agent) {
	t.Helper()
	groups, err := os.ReadFile("/etc/group")
	if err != nil {
		t.Fatal(err)
	}
	mine := regexp.MustCompile(`(?m)^hostler(-admin)?:.*\n`).ReplaceAllString(string(groups), "") +
		fmt.Sprintf("hostler:x:%d:\nhostler-admin:x:%d:\n", readersGID, readersGID+1)
	file := filepath.Join(a.Dir, "group")
	if err := os.WriteFile(file, []byte(mine), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(a.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a.Prefix = []string{"unshare", "--mount", "sh", "-ec", `mount --bind "$0" /etc/group; exec "$@"`, file}
}

// document is a document of a request.
type document struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// requestOf returns the body of a plan of n objects of each kind, in documents
// of 500. %d stands for an object's number.
func requestOf(t *testing.T, n int, kinds map[string]string) []byte {
	t.Helper()
	var docs []document
	for first := 0; first < n; first += 500 {
		name := fmt.Sprintf("d%d", first)
		var text strings.Builder
		text.WriteString("version: 1\nname: " + name + "\n")
		for kind, object := range kinds {
			text.WriteString(kind + ":\n")
			for i := first; i < min(n, first+500); i++ {
				text.WriteString(" " + strings.ReplaceAll(object, "%d", strconv.Itoa(i)) + "\n")
			}
		}
		docs = append(docs, document{Name: name, Content: text.String()})
	}
	body, err := json.Marshal(map[string]any{"documents": docs})
	if err != nil {
		t.Fatal(err)
	}
	if len(body) > 1<<20 {
		t.Fatalf("%d of %v have %d bytes", n, kinds, len(body))
	}
	return body
}

// readers ask the agent for plans.
type readers struct {
	sync.WaitGroup
	ended chan struct{}

	mu sync.Mutex
	// answers counts the answers by status; 0 is a connection that the agent
	// closed.
	answers map[int]int
}

// readerOf returns a client of the agent that is a reader.
func readerOf(a *harness.Agent, uid uint32) *http.Client {
	return &http.Client{Transport: &http.Transport{Dial: func(string, string) (net.Conn, error) {
		return hosttest.DialAs(a.Socket(), uid, readersGID)
	}}}
}

// plan asks for a plan and returns the answer, with the status 0 without any.
func plan(reader *http.Client, body []byte) (status int, answer string) {
	resp, err := reader.Post("http://hostler/v1/plan", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// flood starts a reader of each uid, which asks again at once after an answer,
// and soon after a refusal.
func flood(a *harness.Agent, uids []uint32, bodies [][]byte) *readers {
	r := &readers{ended: make(chan struct{}), answers: map[int]int{}}
	for i, uid := range uids {
		r.Go(func() {
			reader := readerOf(a, uid)
			defer reader.CloseIdleConnections()
			for n := i; ; n++ {
				status, _ := plan(reader, bodies[n%len(bodies)])
				r.mu.Lock()
				r.answers[status]++
				r.mu.Unlock()
				again := time.Duration(0)
				if status != http.StatusOK && status != http.StatusBadRequest {
					again = 200 * time.Millisecond
				}
				select {
				case <-r.ended:
					return
				case <-time.After(again):
				}
			}
		})
	}
	return r
}

func (r *readers) count(status int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers[status]
}

// unitLimit returns a limit of the agent's unit in MiB.
func unitLimit(t *testing.T, setting string) int {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join(harness.Root(t), "debian/hostler.hostlerd.service"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + setting + `=(\d+)MiB$`).FindSubmatch(unit)
	if found == nil {
		t.Fatalf("the unit has no %s in MiB", setting)
	}
	limit, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// peakMemory returns the greatest resident size of a process so far, in MiB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	peak := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`).FindSubmatch(status)
	if peak == nil {
		t.Fatalf("no peak in\n%s", status)
	}
	kib, err := strconv.Atoi(string(peak[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// Forty readers ask at once for the greatest plans that fit into a request: the
// agent refuses all but two of them, answers root, changes what root declares,
// and needs no more memory than its unit gives it.
// Attack: API
func TestReadersPlansDoNotKeepTheAgentFromRoot(t *testing.T) {
	s := lxdtest.Start(t)
	a := harness.NewAgent(t, s.Dir)
	limit := unitLimit(t, "Environment=GOMEMLIMIT")
	a.Env = append(a.Env, fmt.Sprintf("GOMEMLIMIT=%dMiB", limit))
	readersMayConnect(t, a)
	a.Start()
	a.Apply("site", tiny)
	const machine, filesystem = "m%d: {type: lxd, image: a/1}", "f%d: {provider: tmpfs, size: 1MiB}"
	plans := []struct {
		body   []byte
		status int
	}{
		{requestOf(t, 1990, map[string]string{"machines": "m%d: {type: lxd, image: a/1, cpus: 1, cloud-init: {user-data: '#cloud-config" + strings.Repeat(" ", 350) + "'}}"}), http.StatusOK},
		{requestOf(t, 1900, map[string]string{"filesystems": filesystem, "machines": "m%d: {type: lxd, image: a/1, storage: [{filesystem: f%d, path: /data}]}"}), http.StatusOK},
		{requestOf(t, 500, map[string]string{"networks": "n%d: {bridge: b%d, addresses: ['fd77:%d::1/64'], nat: true}"}), http.StatusOK},
		{requestOf(t, 18000, map[string]string{"machines": machine}), http.StatusBadRequest},
		{requestOf(t, 10000, map[string]string{"networks": "n%d: {bridge: b%d}"}), http.StatusBadRequest},
		{requestOf(t, 8000, map[string]string{"filesystems": filesystem, "machines": "m%d: {type: lxd, image: a/1, storage: [{filesystem: f%d, path: /x}]}"}), http.StatusBadRequest},
	}
	var bodies [][]byte
	for i, p := range plans {
		if status, answer := plan(readerOf(a, readersGID), p.body); status != p.status {
			t.Errorf("plan %d: status %d, want %d: %.500s", i, status, p.status, answer)
		}
		bodies = append(bodies, p.body)
	}
	// 20 connections of one reader, and one of each of 20 others.
	var uids []uint32
	for i := range uint32(20) {
		uids = append(uids, readersGID, readersGID+1+i)
	}
	r := flood(a, uids, bodies)
	stop := sync.OnceFunc(func() { close(r.ended); r.Wait() })
	defer stop()
	for range 5 {
		a.Run("status")
		a.Run("get", "machines")
	}
	a.Run("apply", "-f", a.File("more", "version: 1\nmachines: {more: {type: lxd, image: \"lxd:tiny\"}}\n"), "--wait", "--timeout", "2m")
	for what, status := range map[string]int{"a plan": http.StatusOK, "a plan that is too large": http.StatusBadRequest, "a refusal": http.StatusTooManyRequests} {
		harness.Wait(t, what, time.Minute, func() error {
			if r.count(status) == 0 {
				return errors.New("no reader got it")
			}
			return nil
		})
	}
	stop()
	for status := range r.answers {
		switch status {
		case 0, http.StatusOK, http.StatusBadRequest, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		default:
			t.Errorf("a reader got status %d", status)
		}
	}
	if peak := peakMemory(t, a.PID()); peak > limit {
		t.Errorf("the agent took %d MiB, and its unit gives it %d", peak, limit)
	} else {
		t.Logf("answers by status: %v; the agent took %d MiB", r.answers, peak)
	}
	a.Apply("more", "version: 1\nmachines: {more: {type: lxd, image: \"lxd:tiny\"}, last: {type: lxd, image: \"lxd:tiny\"}}\n")
	if last := a.Machines()["last"]; last.Status != "running" {
		t.Errorf("afterwards machine last is %+v", last)
	}
}
