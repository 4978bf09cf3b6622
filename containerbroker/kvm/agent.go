package kvm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/pause"
)

// agentAnswer is the time limit of one request to the guest's agent. One
// request starts a command and others poll it, so only requests with much data
// take long, e.g. some hundred KiB through a slow guest's serial port.
const agentAnswer = time.Minute

// agentState reports whether the domain has a channel for the guest's agent,
// and whether the agent has opened it. A foreign domain may have no channel.
func agentState(live definition) (connected, channel bool) {
	for _, ch := range live.domain.Devices.Channels {
		if ch.Target != nil && ch.Target.VirtIO != nil && ch.Target.VirtIO.Name == agentChannel {
			return ch.Target.VirtIO.State == "connected", true
		}
	}
	return false, false
}

func agentConnected(live definition) bool {
	connected, _ := agentState(live)
	return connected
}

// ask sends the guest's agent a command of QEMU's guest agent protocol
// (qga/qapi-schema.json) and reads its answer into target, which may be nil.
func ask(c *conn, dom libvirt.Domain, command string, arguments, target any) error {
	return askWithin(agentAnswer, c, dom, command, arguments, target)
}

// askWithin is like ask(), with the given limit, in whole seconds. Before that,
// libvirt checks that the agent listens, which may take up to 5 s more.
func askWithin(limit time.Duration, c *conn, dom libvirt.Domain, command string, arguments, target any) error {
	request, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return fault.New(fault.Invalid, "cannot write a command for the guest's agent: %v", err)
	}
	if len(request) > maxAgentRequest {
		return fault.New(fault.Invalid, "the guest's agent takes at most %d MiB per command", maxAgentRequest>>20)
	}
	var text libvirt.OptString
	err = c.CallWithin(limit+c.limit, "ask the guest's agent", func(l *libvirt.Libvirt) (err error) {
		text, err = l.QEMUDomainAgentCommand(dom, string(request), int32(limit/time.Second), 0)
		return err
	})
	if err != nil {
		return err
	}
	if target == nil || len(text) == 0 {
		return nil
	}
	answer := struct {
		Return any `json:"return"`
	}{target}
	if err := json.Unmarshal([]byte(text[0]), &answer); err != nil {
		return fault.New(fault.Transient, "the guest's agent gave an unreadable answer: %v", err)
	}
	return nil
}

// maxAgentRequest bounds a request in bytes. libvirt passes on strings of up to
// 4 MiB.
const maxAgentRequest = 3 << 20

// awaitAgent waits until the guest's agent answers. It reads the guest's state
// and definition at once, or after quiet, and again after each event. It
// returns fault.NotReady if the guest does not run, if the limit has passed or
// if hopeless returns true, which is called after each event and every
// lookAgain.
func (d *Driver) awaitAgent(ctx context.Context, c *conn, dom libvirt.Domain, quiet, limit time.Duration, hopeless func(definition) bool) error {
	guest, err := d.watch(ctx, dom)
	if err != nil {
		return err
	}
	defer guest.end()
	deadline := time.Now().Add(limit)
	if quiet > 0 {
		if _, err := guest.wait(ctx, quiet); err != nil {
			return err
		}
	}
	var live definition
	for read := true; ; {
		rest := min(time.Until(deadline), d.lookAgain())
		if read {
			if live, err = readRunning(c, dom); err != nil {
				return err
			}
			if agentConnected(live) {
				if err = ask(c, dom, "guest-ping", nil, nil); err == nil || !fault.Is(err, fault.NotReady) && !fault.Is(err, fault.Transient) {
					return err
				}
				// The agent has opened its channel, so no event will follow.
				rest = min(rest, lookEach)
			}
		}
		if rest <= 0 || hopeless(live) {
			if _, channel := agentState(live); !channel {
				return fault.New(fault.NotReady, "it has no channel for a guest agent; add the channel %s with `virsh edit %s`, install qemu-guest-agent in the guest, and start it again",
					agentChannel, clean(dom.Name, 64))
			}
			return fault.New(fault.NotReady, "its guest agent does not answer; the guest needs the package qemu-guest-agent, and its service running")
		}
		if read, err = guest.wait(ctx, rest); err != nil {
			return err
		}
		read = read || agentConnected(live)
	}
}

// lookAgain is the interval between looks for a guest's addresses. Each look
// costs two calls of libvirt.
func (d *Driver) lookAgain() time.Duration { return max(d.opts.SeenTimeout/16, lookEach) }

// readRunning reads the definition of a guest that runs. It returns
// fault.NotReady for other guests.
func readRunning(c *conn, dom libvirt.Domain) (definition, error) {
	now, err := status(c, dom)
	if err != nil {
		return definition{}, err
	}
	if now == containerbroker.StatusFrozen {
		return definition{}, fault.New(fault.NotReady, "it is paused; resume it with `hostler start %s`", clean(dom.Name, 64))
	}
	if !running(now) {
		return definition{}, fault.New(fault.NotReady, "it is %s", now)
	}
	return readDefinition(c, dom, 0)
}

// agentSilence is how long the driver waits for the agent of a guest that
// should have booted.
const agentSilence = 15 * time.Second

// agentLimit returns how long to wait for a guest's agent. That is the rest of
// AgentTimeout, counted from the guest's start, but at least agentSilence. If
// the agent has already answered since the start, it is agentSilence.
func (d *Driver) agentLimit(dom libvirt.Domain) time.Duration {
	most := d.opts.AgentTimeout
	left := most
	if file, err := os.Stat(d.pidFile(dom)); err == nil {
		left -= time.Since(file.ModTime())
	}
	if known, _ := d.lessonOf(dom); known.life == dom.ID && len(known.addresses) > 0 {
		left = 0
	}
	return min(max(left, agentSilence), most)
}

// started is the answer of guest-exec. ended is the answer of
// guest-exec-status.
type started struct {
	PID int64 `json:"pid"`
}

type ended struct {
	Exited    bool   `json:"exited"`
	Code      int    `json:"exitcode"`
	Signal    int    `json:"signal"`
	Out       string `json:"out-data"`
	Err       string `json:"err-data"`
	Truncated bool   `json:"out-truncated"`
}

// command holds the arguments of guest-exec.
type command struct {
	Path    string   `json:"path"`
	Args    []string `json:"arg,omitempty"`
	Env     []string `json:"env,omitempty"`
	Input   string   `json:"input-data,omitempty"`
	Capture bool     `json:"capture-output"`
}

// runInGuest runs a command in the guest, waits for its end and returns its
// result, stdout and stderr.
func runInGuest(ctx context.Context, c *conn, dom libvirt.Domain, cmd command) (ended, []byte, []byte, error) {
	var began started
	var result ended
	if err := ask(c, dom, "guest-exec", cmd, &began); err != nil {
		return result, nil, nil, err
	}
	silent := time.Now()
	for wait := 20 * time.Millisecond; ; wait = min(wait*2, time.Second) {
		result = ended{}
		err := ask(c, dom, "guest-exec-status", began, &result)
		if err != nil && (!fault.Is(err, fault.NotReady) || time.Since(silent) > agentAnswer) {
			return result, nil, nil, err
		}
		if err == nil {
			silent = time.Now()
		}
		if result.Exited {
			break
		}
		if err := pause.For(ctx, wait); err != nil {
			return result, nil, nil, err
		}
	}
	out, err := base64.StdEncoding.DecodeString(result.Out)
	if err != nil {
		return result, nil, nil, fault.New(fault.Transient, "the guest's agent gave unreadable output")
	}
	complaints, err := base64.StdEncoding.DecodeString(result.Err)
	if err != nil {
		return result, nil, nil, fault.New(fault.Transient, "the guest's agent gave unreadable output")
	}
	return result, out, complaints, nil
}
