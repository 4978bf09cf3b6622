package lxd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// readyScript runs once in the guest and waits there, so that nothing is
// polled over the socket. $1 is how many fifths of a second it may wait for
// an address, 0 for not at all; every further argument is a list of addresses,
// as the kernel writes them, of which it waits for one. It prints "word value" lines, and what
// cloud-init wrote about its run after the line "result". A systemd that has
// only just begun breaks off the wait for its boot, so that is asked again.
const readyScript = `
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
has() {
  for d in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do
    if [ -x "$d/$1" ]; then return 0; fi
  done
  return 1
}
read -r init </proc/1/comm
echo "init $init"
if [ "$init" = systemd ] && has systemctl; then
  n=0
  state=
  while [ "$n" -lt 300 ]; do
    if [ -e /run/systemd/private ]; then
      state=$(timeout 300 systemctl is-system-running --wait 2>/dev/null)
      [ "$?" -ne 124 ] || break
    fi
    case "$state" in running|degraded|maintenance|stopping) break;; esac
    sleep 0.1
    n=$((n+1))
  done
  echo "system $state"
fi
if has cloud-init && [ ! -e /etc/cloud/cloud-init.disabled ] && { [ "$init" = systemd ] || [ -d /run/openrc ]; }; then
  if [ -e /run/cloud-init/disabled ]; then
    echo "cloud-init disabled"
  else
    [ -e /run/cloud-init/result.json ] || cloud-init status --wait >/dev/null 2>&1
    if [ -e /run/cloud-init/result.json ]; then
      echo "cloud-init done"
    else
      cloud-init status 2>/dev/null | while read -r key value; do [ "$key" != status: ] || echo "cloud-init $value"; done
    fi
  fi
fi
one() {
  last=
  while read -r a b c d; do
    case "$a" in "|--"|"+--") last=$b;; esac
    if [ "$b $c" = "host LOCAL" ]; then case "$last" in 127.*) ;; *) case "$1" in ""|*" $last "*) return 0;; esac;; esac; fi
  done </proc/net/fib_trie
  [ -r /proc/net/if_inet6 ] || return 1
  while read -r a b c d e f; do
    if [ "$d" = 00 ] && [ "$f" != lo ]; then case "$1" in ""|*" $a "*) return 0;; esac; fi
  done </proc/net/if_inet6
  return 1
}
tries=$1
shift
[ "$#" -gt 0 ] || set -- ""
address() {
  for list in "$@"; do one "$list" || return 1; done
}
if [ "$tries" -gt 0 ]; then
  if address "$@"; then echo "address found"
  elif [ -e /run/systemd/netif/state ] || has udhcpc || has dhclient || has dhcpcd || has NetworkManager || has connmand; then
    n=0
    until address "$@" || [ "$n" -ge "$tries" ]; do sleep 0.2 || sleep 1; n=$((n+1)); done
    if address "$@"; then echo "address found"; else echo "address missing"; fi
  else echo "address unlikely"; fi
fi
if [ -e /run/cloud-init/result.json ]; then echo result; head -c 16384 /run/cloud-init/result.json; fi
exit 0
`

// maxReport bounds, in bytes, what is kept of the script's output.
const maxReport = 64 << 10

// WaitReady implements containerbroker.ReadinessProbe. It takes two requests
// for the instance's state and, where something has to be waited for, one
// command in the guest, however long that takes; ctx is the limit. A guest
// without a shell is ready when it runs.
func (d *Driver) WaitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	found, err := d.waitReady(ctx, m, progress)
	if err != nil {
		return containerbroker.Readiness{}, fmt.Errorf("instance %q is not ready: %w", m.Name, err)
	}
	return found, nil
}

func (d *Driver) waitReady(ctx context.Context, m containerbroker.Machine, progress containerbroker.Progress) (containerbroker.Readiness, error) {
	var ready containerbroker.Readiness
	c, err := d.open(ctx, d.opts.RequestTimeout)
	if err != nil {
		return ready, err
	}
	before, err := d.running(c, m.Name)
	if err != nil {
		return ready, err
	}
	d.inits.see(m.Name, before.State.Pid)
	progress.Report("ready", "waiting for "+m.Name, -1)
	if rest := d.opts.SettleTime - time.Since(startedAt(before)); rest > 0 {
		if err := pause(ctx, rest); err != nil {
			return ready, err
		}
	}
	var report string
	var execErr error
	if init, plain := d.guestsInit(before.State.Pid); plain && !expectsAddress(m) {
		report = "init " + init
	} else {
		report, execErr = d.ask(ctx, m)
	}
	if ctx.Err() != nil {
		return ready, fmt.Errorf("%w while waiting for its init, cloud-init or address", ctx.Err())
	}
	after, err := d.running(c, m.Name)
	if err != nil {
		return ready, err
	}
	if after.State.Pid != before.State.Pid {
		return ready, fault.New(fault.Transient, "its init was started again meanwhile")
	}
	if execErr != nil && !fault.Is(execErr, fault.Invalid) { // invalid: there is no shell
		return ready, execErr
	}
	ready = reportOf(report)
	ready.Addresses = addressesOf(after.State)
	return ready, judge(report, ready, d.opts.AddressTimeout, lacking(m, ready.Addresses))
}

// ask has the script run in the guest and returns what it printed.
func (d *Driver) ask(ctx context.Context, m containerbroker.Machine) (string, error) {
	tries := 0
	if expectsAddress(m) {
		tries = int(d.opts.AddressTimeout / (200 * time.Millisecond))
	}
	var report, complaints boundedBuffer
	_, err := d.exec(ctx, m.Name, containerbroker.ExecRequest{
		Command: append([]string{"/bin/sh", "-c", readyScript, "sh", strconv.Itoa(tries)}, awaited(m)...),
		Stdout:  &report, Stderr: &complaints,
	})
	return report.String(), err
}

// running returns the state of an instance, or a transient error with its
// last words when it does not run.
func (d *Driver) running(c *client, name string) (api.InstanceFull, error) {
	var found api.InstanceFull
	if _, err := c.get(instancePath(name)+"?recursion=1", &found); err != nil {
		return found, err
	}
	status := statusOf(found.StatusCode)
	if status == containerbroker.StatusRunning && (found.State == nil || found.State.Pid <= 0) {
		status = containerbroker.StatusStopped // LXD has not noticed yet
	}
	if status != containerbroker.StatusRunning {
		return found, fault.New(fault.Transient, "%s", d.died(c.ctx, name, status))
	}
	return found, nil
}

// startedAt returns when LXD started the instance; a time in the future (the
// clock was set) counts as now.
func startedAt(i api.InstanceFull) time.Time {
	if now := time.Now(); i.LastUsedAt.After(now) {
		return now
	}
	return i.LastUsedAt
}

// reportOf reads what the script printed. A guest may print anything.
func reportOf(report string) containerbroker.Readiness {
	var ready containerbroker.Readiness
	for line := range strings.SplitSeq(report, "\n") {
		if line == "result" {
			break
		}
		word, value, _ := strings.Cut(line, " ")
		switch value = clean(value, 64); word {
		case "init":
			ready.Init = value
		case "cloud-init":
			ready.CloudInit = value
		}
	}
	if failure := cloudInitFailure(report); failure != "" {
		ready.CloudInit = "error: " + failure
	}
	return ready
}

// judge says why a guest that answered is not ready.
func judge(report string, ready containerbroker.Readiness, waited time.Duration, lacking string) error {
	if failure, ok := strings.CutPrefix(ready.CloudInit, "error"); ok {
		return fault.New(fault.NeedsOperator, "cloud-init failed%s (more is in /var/log/cloud-init-output.log in the guest)", failure)
	}
	for line := range strings.SplitSeq(report, "\n") {
		switch line {
		case "result":
			return nil
		case "address missing":
			if lacking != "" {
				return fault.New(fault.Transient, "its %s after %s", lacking, waited)
			}
			return fault.New(fault.Transient, "it has no address after %s", waited)
		case "system maintenance", "system stopping":
			return fault.New(fault.Transient, "its systemd is in state %s", strings.TrimPrefix(line, "system "))
		}
	}
	return nil
}

// cloudInitFailure returns the errors in cloud-init's result.json.
func cloudInitFailure(report string) string {
	_, document, found := strings.Cut("\n"+report, "\nresult\n")
	if !found {
		return ""
	}
	var result struct {
		V1 struct {
			Errors []string `json:"errors"`
		} `json:"v1"`
	}
	if json.Unmarshal([]byte(document), &result) != nil {
		return ""
	}
	return clean(strings.Join(result.V1.Errors, "\n"), maxMessage)
}

// boundedBuffer keeps the first maxReport bytes and swallows the rest.
type boundedBuffer struct{ bytes.Buffer }

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if left := maxReport - b.Len(); left > 0 {
		b.Buffer.Write(p[:min(left, len(p))])
	}
	return len(p), nil
}
