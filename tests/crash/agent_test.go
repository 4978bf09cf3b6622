//go:build integration

package crash_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"hostler/internal/hosttest"
	"hostler/tests/harness"
)

// agent is one process of hostlerd.
type agent struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

func (a *agent) dead() bool {
	select {
	case <-a.exited:
		return true
	default:
		return false
	}
}

// launch starts the agent and does not wait for it.
func (w *world) launch() {
	w.Helper()
	log, err := os.OpenFile(w.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintf(log, "--- start, armed with %q\n", w.plan)
	argv := slices.Concat([]string{"--mount=" + w.room.String()}, w.prefix, []string{
		filepath.Join(w.bin, "hostlerd"), "--debug",
		"--config", w.path("etc/hostler.yaml"), "--state-dir", w.path("state"), "--run-dir", w.path("run"),
	})
	cmd := exec.Command("nsenter", argv...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOSTLER_") && !strings.HasPrefix(v, "LXD_") && !strings.HasPrefix(v, "INCUS_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(cmd.Env, w.folders()...), "HOSTLER_FAILPOINTS="+w.plan, "HOSTLER_FAILPOINT_LOG="+w.path("hits"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	w.plan = ""
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	a := &agent{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(a.exited)
	}()
	w.agent = a
}

// start starts the agent and waits until it answers or is dead.
func (w *world) start() {
	w.Helper()
	w.launch()
	harness.Wait(w, "the agent", patience, func() error {
		if w.agent.dead() {
			return nil
		}
		return w.get("/v1/version")
	})
}

// kill ends the agent with SIGKILL.
func (w *world) kill() {
	if w.agent != nil && !w.agent.dead() {
		_ = w.agent.cmd.Process.Kill()
		<-w.agent.exited
	}
}

// stop ends the agent as a service manager does.
func (w *world) stop() {
	w.Helper()
	_ = w.agent.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.agent.exited:
	case <-time.After(patience):
		w.Fatal("the agent does not end")
	}
}

// get asks the agent's socket without the command line.
func (w *world) get(path string) error { return w.request(http.MethodGet, path, "") }

func (w *world) request(method, path, body string) error {
	client := hosttest.Client(w.path("run/hostler.sock"))
	client.Timeout = patience
	req, err := http.NewRequest(method, "http://hostler"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", rand.Text())
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return errors.New(resp.Status)
	}
	return nil
}
