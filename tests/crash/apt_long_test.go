//go:build integration && long

package crash_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/tests/harness"
)

// installation is how long apt may take to fetch and install LXD.
const installation = 10 * time.Minute

// I8, I13: an agent that is killed, or fails, while apt installs LXD leaves no
// package half installed, and the next one goes on where it was. Each time it
// is on a host that has never had LXD.
func TestAptPoints(t *testing.T) {
	lxd := harness.StartLXD(t, 42)
	image, digest := harness.TinyImage(t)
	for i, point := range append([]string{"init-after-apt-before-record"}, aptPoints...) {
		for _, action := range []string{"kill", "error"} {
			t.Run(point+"="+action, func(t *testing.T) {
				name := fmt.Sprintf("apt-%s-%d", action, i)
				h := &aptHost{T: t, host: lxd.StartHost(name).With(t)}
				for _, program := range []string{"hostlerd", "hostler"} {
					h.host.Push(filepath.Join(binaries(t), program), "/root/"+program)
				}
				h.host.Push(image, "/root/tiny.tar.gz")
				h.host.Write("/root/one.yaml", "version: 1\nmachines:\n  one: {type: lxd, image: 'file:/root/tiny.tar.gz#sha256="+digest+"'}\n")
				h.host.Sh("chmod 755 /root/hostler*; mkdir -p /root/etc; echo 'namespace: apt' >/root/etc/hostler.yaml")
				h.start(point + "=" + action + "#1")
				h.host.Sh("HOSTLER_SOCKET=/root/run/hostler.sock /root/hostler apply -f /root/one.yaml")
				if action == "kill" {
					h.ended()
					h.sane(point)
					h.start("")
				}
				h.running()
				h.sane(point)
				lxd.Lxc("delete", "-f", name)
			})
		}
	}
}

// aptHost is a machine with an agent on it.
type aptHost struct {
	*testing.T
	host *harness.Host
}

func (h *aptHost) start(plan string) {
	h.Helper()
	h.host.Sh("cd /root; HOSTLER_FAILPOINTS='" + plan + "' HOSTLER_FAILPOINT_LOG=/root/hits setsid ./hostlerd --provisioners inside" +
		" --config /root/etc/hostler.yaml --state-dir /root/state --run-dir /root/run </dev/null >>/root/log 2>&1 & echo $! >/root/pid")
	harness.Wait(h, "the agent", patience, func() error {
		if _, err := h.host.Try("HOSTLER_SOCKET=/root/run/hostler.sock /root/hostler status"); err != nil {
			return fmt.Errorf("%w\n%s", err, h.log())
		}
		return nil
	})
}

// ended waits until the agent is dead and apt, which goes on alone, is done.
func (h *aptHost) ended() {
	h.Helper()
	harness.Wait(h, "the agent's end", installation, func() error {
		_, err := h.host.Try("! kill -0 $(cat /root/pid) 2>/dev/null && ! pgrep -x apt-get && ! pgrep -x dpkg")
		return err
	})
}

func (h *aptHost) running() {
	h.Helper()
	harness.Wait(h, "the machine", installation, func() error {
		out, err := h.host.Try("HOSTLER_SOCKET=/root/run/hostler.sock /root/hostler get machines -o json")
		if err != nil {
			return err
		}
		var machines []machine
		if err := json.Unmarshal([]byte(out), &machines); err != nil {
			return err
		}
		if len(machines) != 1 || machines[0].Status != "running" {
			return fmt.Errorf("%+v\n%s", machines, h.log())
		}
		// There is no lxc command: the agent installs what it needs, no more.
		instances, err := h.host.Try("lxd sql global 'SELECT name FROM instances'")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, h.log())
		}
		if strings.Count(instances, "| one ") != 1 {
			return fmt.Errorf("the instances are %s", instances)
		}
		return nil
	})
}

// sane checks the packages, and that the point was hit.
func (h *aptHost) sane(point string) {
	h.Helper()
	if out := h.host.Sh("dpkg --audit"); strings.TrimSpace(out) != "" {
		h.Errorf("dpkg --audit: %s", out)
	}
	if hits, _ := h.host.Try("cat /root/hits"); !strings.Contains("\n"+hits, "\n"+point+"\n") {
		h.Errorf("%s was never hit:\n%s", point, h.log())
	}
}

func (h *aptHost) log() string {
	out, _ := h.host.Try("tail -n 30 /root/log")
	return out
}
