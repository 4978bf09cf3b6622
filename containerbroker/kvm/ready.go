package kvm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/containerbroker/guestprobe"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// WaitReady implements containerbroker.ReadinessProbe. It lets the guest's
// agent run a script. A guest whose agent does not answer is ready SeenTimeout
// after its addresses were first seen from the host. If none are seen, the
// guest is ready after AgentTimeout, or at once if it has no channel for an
// agent, unless the machine expects an address.
func (d *Driver) WaitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	found, err := d.waitReady(ctx, m, progress)
	return found, fault.Explain(err, "instance %q is not ready", m.Name)
}

func (d *Driver) waitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	var ready containerbroker.Readiness
	c, err := d.borrow(ctx)
	if err != nil {
		return ready, err
	}
	defer c.Close()
	progress.Report("ready", "waiting for "+m.Name, -1)
	// A new guest needs some time before its agent answers, and libvirt tells
	// when it does, so do not ask meanwhile.
	quiet := d.lookAgain()
	dom, begun := d.begun.take(m.Name)
	if !begun {
		quiet = 0
		if dom, err = c.domain(m.Name); err != nil {
			return ready, err
		}
	}
	report, agentErr := d.probe(ctx, c, dom, quiet, m)
	if ctx.Err() != nil {
		return ready, fmt.Errorf("%w while waiting for its agent, cloud-init or address", ctx.Err())
	}
	after, err := d.alive(c, dom)
	if err != nil {
		return ready, err
	}
	if after.ID != dom.ID {
		return ready, fault.New(fault.Transient, "it was started again meanwhile")
	}
	if agentErr != nil {
		return d.readyFromOutside(ctx, c, after, m, agentErr)
	}
	d.mu.Lock()
	delete(d.learned, m.Name) // addresses that the agent reported earlier may be incomplete
	d.mu.Unlock()
	ready = guestprobe.Report(report)
	ready.Addresses, _ = d.askAddresses(c, after, agentAnswer)
	if err := guestprobe.Judge(m, report, ready, d.opts.AddressTimeout); err != nil {
		return ready, err
	}
	ready.SSH, ready.NoSSH = guestprobe.SSH(ctx, report, ready.Addresses)
	return ready, ctx.Err()
}

// leaseTime is how long the script waits for an address on libvirt's own
// network.
const leaseTime = 15 * time.Second

// alive returns the domain with the number of its present life. If the guest
// does not run, alive returns a transient error with the last lines of its
// console.
func (d *Driver) alive(c *conn, dom libvirt.Domain) (libvirt.Domain, error) {
	now, err := status(c, dom)
	if err != nil {
		return dom, err
	}
	if now != containerbroker.StatusRunning {
		return dom, containerbroker.WithConsole(fault.New(fault.Transient, "it is %s", now), d.lastWords(c, dom))
	}
	return c.domain(dom.Name)
}

// probe runs the script in the guest and returns its output. If the guest has
// just begun, quiet is the time before the first look at it.
func (d *Driver) probe(ctx context.Context, c *conn, dom libvirt.Domain, quiet time.Duration, m containerbroker.Machine) (string, error) {
	var since time.Time // when all awaited addresses were first seen from the host
	agentless := func(live definition) bool {
		if _, channel := agentState(live); !channel && !guestprobe.ExpectsAddress(m) {
			return true // there is nothing to wait for
		}
		if have := d.seen(c, dom, live); len(have) == 0 || guestprobe.Lacking(m, have) != "" {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > d.opts.SeenTimeout
	}
	if err := d.awaitAgent(ctx, c, dom, quiet, d.opts.AgentTimeout, agentless); err != nil {
		return "", err
	}
	limit := d.opts.AddressTimeout
	if !guestprobe.ExpectsAddress(m) {
		// libvirt's own network has a DHCP server, so the guest will probably get
		// an address. It is ready without.
		m.ExpectAddress, limit = true, min(leaseTime, limit)
	}
	script := guestprobe.Command(m, limit)
	_, out, _, err := runInGuest(ctx, c, dom, command{Path: script[0], Args: script[1:], Capture: true})
	var report guestprobe.Output
	_, _ = report.Write(out)
	return report.String(), err
}

// readyFromOutside judges a guest whose agent does not answer by its addresses
// as seen from the host.
func (d *Driver) readyFromOutside(ctx context.Context, c *conn, dom libvirt.Domain, m containerbroker.Machine, cause error) (containerbroker.Readiness, error) {
	if !fault.Is(cause, fault.NotReady) {
		return containerbroker.Readiness{}, cause
	}
	def, err := readDefinition(c, dom, 0)
	if err != nil {
		return containerbroker.Readiness{}, err
	}
	ready := containerbroker.Readiness{Addresses: d.seen(c, dom, def), Init: "unknown"}
	if guestprobe.ExpectsAddress(m) && len(ready.Addresses) == 0 {
		return containerbroker.Readiness{}, fault.New(fault.Transient, "it has no known address, and %v", cause)
	}
	if lacking := guestprobe.Lacking(m, ready.Addresses); lacking != "" {
		return containerbroker.Readiness{}, fault.New(fault.Transient, "its %s, and %v", lacking, cause)
	}
	d.log.Warn("A guest has no agent: its readiness is judged from the host.", "instance", m.Name)
	return ready, ctx.Err()
}

// maxTail bounds, in bytes, the part of a console log that is read from its
// end.
const maxTail = 16 << 10

// lastWords returns the last three lines of the console log, or "" if the log
// cannot be read.
func (d *Driver) lastWords(c *conn, dom libvirt.Domain) string {
	def, err := readDefinition(c, dom, xmlInactive)
	if err != nil {
		return ""
	}
	for _, serial := range def.domain.Devices.Serials {
		if serial.Log == nil {
			continue
		}
		data, err := tail(filepath.Clean(serial.Log.File))
		if err != nil {
			return ""
		}
		return oneline.Last(oneline.Lines(string(data)), 3)
	}
	return ""
}

func tail(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, maxTail)
	n, err := f.ReadAt(data, max(info.Size()-maxTail, 0))
	if n > 0 {
		err = nil
	}
	return data[:n], err
}
