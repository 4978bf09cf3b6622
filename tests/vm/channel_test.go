//go:build integration

package vm_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// answerLimit bounds one answer of the guest's agent, which only notes and
// looks.
const answerLimit = 2 * time.Minute

// channel gives commands to a machine over QEMU's guest agent: JSON lines over
// a virtual serial port, so that no network of either side has a part in it.
// Its protocol is that of QEMU's documentation, "QEMU Guest Agent Protocol".
type channel struct {
	socket string

	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Reader
}

func (c *channel) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangUp()
}

func (c *channel) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// sync makes sure that the guest's agent listens and that the next answer
// belongs to the next question. What an agent of an earlier boot left unread
// is read over.
func (c *channel) sync(limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		conn, err := net.Dial("unix", c.socket)
		if err != nil {
			return err
		}
		c.conn, c.lines = conn, bufio.NewReader(conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(limit))
	id := rand.Int64N(1 << 52)
	if _, err := fmt.Fprintf(c.conn, "{\"execute\":\"guest-sync\",\"arguments\":{\"id\":%d}}\n", id); err != nil {
		c.hangUp()
		return err
	}
	for {
		line, err := c.lines.ReadBytes('\n')
		if err != nil {
			c.hangUp()
			return err
		}
		var answer struct{ Return int64 }
		if json.Unmarshal(line, &answer) == nil && answer.Return == id {
			return nil
		}
	}
}

// call asks for one thing.
func (c *channel) call(command string, arguments, result any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return errors.New("not connected")
	}
	_ = c.conn.SetDeadline(time.Now().Add(answerLimit))
	question, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		return err
	}
	var line []byte
	if _, err = c.conn.Write(append(question, '\n')); err == nil {
		line, err = c.lines.ReadBytes('\n')
	}
	if err != nil {
		c.hangUp()
		return fmt.Errorf("the machine does not answer: %w", err)
	}
	answer := struct {
		Return any
		Error  struct{ Desc string }
	}{Return: result}
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("the machine answers %q: %w", line, err)
	}
	if answer.Error.Desc != "" {
		return errors.New(answer.Error.Desc)
	}
	return nil
}

// run runs a shell script as root and waits for its end.
func (c *channel) run(script string, limit time.Duration) (string, error) {
	var process struct{ PID int }
	if err := c.call("guest-exec", map[string]any{
		"path": "/bin/sh", "arg": []string{"-c", script}, "capture-output": true,
		"env": []string{"HOME=/root", "LC_ALL=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"},
	}, &process); err != nil {
		return "", fmt.Errorf("%s: %w", script, err)
	}
	deadline := time.Now().Add(limit)
	for pause := 10 * time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, time.Second) {
		var end struct {
			Exited   bool
			ExitCode int    `json:"exitcode"`
			Signal   int    `json:"signal"`
			Out      string `json:"out-data"`
			Err      string `json:"err-data"`
		}
		if err := c.call("guest-exec-status", map[string]any{"pid": process.PID}, &end); err != nil {
			return "", fmt.Errorf("%s: %w", script, err)
		}
		if !end.Exited {
			time.Sleep(pause)
			continue
		}
		stdout, _ := base64.StdEncoding.DecodeString(end.Out)
		stderr, _ := base64.StdEncoding.DecodeString(end.Err)
		if end.ExitCode != 0 || end.Signal != 0 {
			return string(stdout), fmt.Errorf("%s: exit %d, signal %d\n%s%s", script, end.ExitCode, end.Signal, stdout, stderr)
		}
		return string(stdout), nil
	}
	return "", fmt.Errorf("%s: not done within %v", script, limit)
}
