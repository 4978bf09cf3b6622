// Package guestprobe runs a script in a guest to find out whether the guest is
// usable. The script looks at the guest's init, cloud-init and addresses.
package guestprobe

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// script runs once in the guest. It waits inside the guest, so that the driver
// need not poll. $1 is the longest wait for an address, in fifths of a second;
// 0 means no wait. Each further argument is a list of addresses as the kernel
// writes them; the script waits for one address of each list.
//
// The script prints "word value" lines, e.g. "init systemd", including the SSH
// host keys of a guest that listens for SSH. After the lines "stages" and "result"
// it prints cloud-init's status.json and result.json. The guest's root user may replace files, e.g. by a
// fifo, so the script reads only regular files, and each of these for at most 5
// seconds. A systemd that has just started still has the name under
// which it was started, e.g. init, so the script also looks at its executable.
// Early in the boot, "systemctl is-system-running --wait" returns too soon, so
// the script runs it again.
const script = `
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
has() {
  for d in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do
    if [ -x "$d/$1" ]; then return 0; fi
  done
  return 1
}
read -r init </proc/1/comm
if has readlink; then
  case "$(readlink /proc/1/exe 2>/dev/null || :)" in */systemd|*"/systemd (deleted)") init=systemd;; esac
fi
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
if [ -d /etc/ssh ]; then
  listens=
  for f in /proc/net/tcp /proc/net/tcp6; do
    [ ! -r "$f" ] || while read -r a b c d e; do
      case "$b $d" in *":0016 0A") listens=yes;; esac
    done <"$f"
  done
  [ -z "$listens" ] || for f in /etc/ssh/ssh_host_*_key.pub; do
    { [ ! -f "$f" ] || [ ! -r "$f" ]; } || while read -r a b c; do echo "ssh-key $b"; break; done <"$f"
  done
fi
limit=
if has timeout; then limit="timeout 5"; fi
if [ -f /run/cloud-init/status.json ]; then echo stages; $limit head -c 16384 /run/cloud-init/status.json; echo; fi
if [ -f /run/cloud-init/result.json ]; then echo result; $limit head -c 16384 /run/cloud-init/result.json; fi
exit 0
`

// Command returns the command that runs the script in the guest of m. timeout is
// the longest wait for an address.
func Command(m containerbroker.Machine, timeout time.Duration) []string {
	tries := 0
	if ExpectsAddress(m) {
		tries = int(timeout / (200 * time.Millisecond))
	}
	return append([]string{"/bin/sh", "-c", script, "sh", strconv.Itoa(tries)}, awaited(m)...)
}

// maxReport bounds the stored output of the script, in bytes.
const maxReport = 64 << 10

// Output keeps the first bytes of the script's output and drops the rest.
type Output struct{ kept bytes.Buffer }

func (o *Output) Write(p []byte) (int, error) {
	o.kept.Write(p[:min(max(maxReport-o.kept.Len(), 0), len(p))])
	return len(p), nil
}

func (o *Output) String() string { return o.kept.String() }

// Report parses the script's output. It trusts no part, as a guest may print
// anything.
func Report(report string) containerbroker.Readiness {
	var ready containerbroker.Readiness
	for line := range strings.SplitSeq(report, "\n") {
		if line == "stages" || line == "result" {
			break
		}
		word, value, _ := strings.Cut(line, " ")
		switch value = oneline.Clean(value, 64); word {
		case "init":
			ready.Init = value
		case "cloud-init":
			ready.CloudInit = value
		}
	}
	if failure := cloudInitFailure(report); failure != "" {
		ready.CloudInit = "error: " + failure
	}
	ready.CloudInitTook = cloudInitTook(report)
	return ready
}

// Judge returns why the guest of m, which answered, is not ready, or nil. Its
// error names waited, the longest wait for an address.
func Judge(m containerbroker.Machine, report string, ready containerbroker.Readiness, waited time.Duration) error {
	if failure, ok := strings.CutPrefix(ready.CloudInit, "error"); ok {
		return fault.New(fault.NeedsOperator, "cloud-init failed%s (more is in /var/log/cloud-init-output.log in the guest)", failure)
	}
	for line := range strings.SplitSeq(report, "\n") {
		switch line {
		case "stages", "result":
			return nil
		case "address missing":
			if !ExpectsAddress(m) {
				continue
			}
			if lacking := Lacking(m, ready.Addresses); lacking != "" {
				return fault.New(fault.Transient, "its %s after %s", lacking, waited)
			}
			return fault.New(fault.Transient, "it has no address after %s", waited)
		case "system maintenance", "system stopping":
			return fault.New(fault.Transient, "its systemd is in state %s", strings.TrimPrefix(line, "system "))
		}
	}
	return nil
}

// cloudInitFailure returns the errors in cloud-init's result.json, or "" if
// there are none.
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
	return oneline.Clean(strings.Join(result.V1.Errors, "\n"), maxMessage)
}

// maxMessage bounds a guest's text in an error, in bytes.
const maxMessage = 2048
