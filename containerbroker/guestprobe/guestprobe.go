// Package guestprobe knows how to ask a guest, by a script that runs in it,
// whether it can be used: its init, its cloud-init and its addresses.
package guestprobe

import (
	"encoding/json"
	"strings"
	"time"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// Script runs once in the guest and waits there, so that nothing is
// polled over the socket. $1 is how many fifths of a second it may wait for
// an address, 0 for not at all; every further argument is a list of addresses,
// as the kernel writes them, of which it waits for one. It prints "word value"
// lines, among them the SSH host keys of a guest that listens for SSH, and what
// cloud-init wrote about its run after the line "result". Root of the guest may
// put anything in the place of files, e.g. a fifo: only regular ones are read,
// for at most 5 seconds (/proc/kmsg is one that never ends). A systemd that has
// only just begun breaks off the wait for its boot, so that is asked again.
const Script = `
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
if [ -f /run/cloud-init/result.json ]; then echo result; $limit head -c 16384 /run/cloud-init/result.json; fi
exit 0
`

// MaxReport bounds, in bytes, what is kept of the script's output.
const MaxReport = 64 << 10

// Report reads what the script printed. A guest may print anything.
func Report(report string) containerbroker.Readiness {
	var ready containerbroker.Readiness
	for line := range strings.SplitSeq(report, "\n") {
		if line == "result" {
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
	return ready
}

// Judge says why a guest that answered is not ready.
func Judge(report string, ready containerbroker.Readiness, waited time.Duration, lacking string) error {
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
	return oneline.Clean(strings.Join(result.V1.Errors, "\n"), maxMessage)
}

// maxMessage bounds, in bytes, a text from a guest that goes into an error.
const maxMessage = 2048
