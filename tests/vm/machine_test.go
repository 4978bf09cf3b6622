//go:build integration

package vm_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/tests/harness"
)

// Bounds of what a quiet machine with two cores does in a small part of the time.
const (
	bootLimit    = 15 * time.Minute
	initLimit    = 3 * time.Minute
	commandLimit = 30 * time.Minute
)

// machine is a VM under QEMU without hardware help. Its disk is an
// overlay: a file, the same for all its boots.
//
// The disk's cache is one that loses what was not flushed: where the overlay
// grows, QEMU keeps the map of new clusters in its own memory until the guest
// flushes. With QEMU killed, these writes are gone, others of the same moment
// are not, and flushed ones are there, as with a real disk without power.
type machine struct {
	*testing.T
	base    base
	dir     string // the overlay, the console's log, the agent's socket
	payload string // raw file that the machine sees as /dev/vdb, or ""
	seed    string // disk with user-data that the machine has from the next boot on, or ""
	qemu    *exec.Cmd
	stderr  *strings.Builder // what QEMU says; to be read after exited is closed
	exited  chan struct{}
	guest   *channel
}

// newMachine prepares a machine whose disk stands on the image file parent;
// boot starts it. With the test it is gone, process and files.
func newMachine(t *testing.T, b base, parent, payload string) *machine {
	t.Helper()
	m := &machine{T: t, base: b, dir: cache(t, "run"), payload: payload}
	// What is there is left of a run that was killed; its QEMU died with it.
	fresh(t, m.dir)
	harness.Run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-b", parent, "-F", "qcow2", m.disk())
	t.Cleanup(func() {
		if t.Failed() {
			m.tell()
		}
		m.cut()
		_ = os.RemoveAll(m.dir)
	})
	return m
}

func (m *machine) disk() string { return filepath.Join(m.dir, "disk.qcow2") }

// boot starts the machine and waits until it takes commands. Its kernel takes
// emulated time-stamp counters for unsynchronised and would ask the time of a
// device, which is a way out of the emulation each time: they all are the
// host's. Nor does it check that the timer interrupts: on a busy host the
// emulated one comes too late, and the kernel panics. On such a host the kernel may
// also stop before its init, or measure the clock's rate wrongly, so that all its
// timeouts end too early. No program of the disk can cause either, and the machine is
// started again.
func (m *machine) boot() {
	m.Helper()
	start := time.Now()
	for tries := 1; ; tries++ {
		launched := time.Now()
		m.launch()
		why := ""
		if !m.initStarted() {
			why = "the emulated kernel did not start its init; its console ends:\n" + m.console()
		} else {
			m.reached(start)
			if up := m.uptime(); up > 2*time.Since(launched) {
				why = fmt.Sprintf("the emulated clock is too fast: %s after %s", up, time.Since(launched))
			}
		}
		if why == "" {
			return
		}
		if m.Log(why); tries == 3 {
			m.FailNow()
		}
		m.cut()
	}
}

// uptime is the time since the boot by the machine's clock.
func (m *machine) uptime() time.Duration {
	m.Helper()
	out := m.sh("cut -d ' ' -f 1 /proc/uptime")
	d, err := time.ParseDuration(strings.TrimSpace(out) + "s")
	if err != nil {
		m.Fatal(err)
	}
	return d
}

// console returns the end of what the kernel wrote.
func (m *machine) console() string {
	text, _ := os.ReadFile(filepath.Join(m.dir, "console"))
	return string(text[max(0, len(text)-2000):])
}

// initStarted waits until the kernel has started systemd. It returns false after the
// time that far more than suffices.
func (m *machine) initStarted() bool {
	for deadline := time.Now().Add(initLimit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(m.dir, "console"))
		if bytes.Contains(text, []byte("systemd[1]:")) || m.gone(0) {
			return true
		}
	}
	return false
}

// launch starts the machine.
func (m *machine) launch() {
	m.Helper()
	socket := filepath.Join(m.dir, "agent")
	args := []string{
		"-machine", "q35,usb=off,vmport=off", "-accel", "tcg,thread=multi", "-cpu", "qemu64", "-smp", "2", "-m", "1536",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-name", "hostler-test",
		"-kernel", m.base.kernel, "-initrd", m.base.initrd,
		"-append", "root=/dev/vda ro console=ttyS0 net.ifnames=0 systemd.show_status=0 mitigations=off nowatchdog panic=-1 tsc=reliable no_timer_check",
		"-drive", "file=" + m.disk() + ",format=qcow2,if=virtio,cache=writeback,discard=unmap",
		"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
		"-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,server=on,wait=off,path=" + socket, "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
		"-serial", "file:" + filepath.Join(m.dir, "console"),
	}
	for _, file := range []string{m.payload, m.seed} {
		if file != "" {
			args = append(args, "-drive", "file="+file+",format=raw,if=virtio,readonly=on")
		}
	}
	_ = os.Remove(socket)
	m.start(args)
	m.guest = &channel{socket: socket}
}

// start runs QEMU so that it dies with this process, however that ends: the
// kernel watches the thread that started it, which therefore stays.
func (m *machine) start(args []string) {
	m.Helper()
	m.qemu = exec.Command("qemu-system-x86_64", args...)
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.stderr = &strings.Builder{}
	m.qemu.Stderr = m.stderr
	m.exited = make(chan struct{})
	started := make(chan error)
	go func(qemu *exec.Cmd, exited chan struct{}) {
		runtime.LockOSThread()
		err := qemu.Start()
		started <- err
		if err == nil {
			_ = qemu.Wait()
		}
		close(exited)
	}(m.qemu, m.exited)
	if err := <-started; err != nil {
		m.Fatalf("cannot start QEMU: %v", err)
	}
	if m.gone(100 * time.Millisecond) {
		m.Fatalf("QEMU ended: %s", m.stderr)
	}
}

// reached waits until the machine takes commands.
func (m *machine) reached(since time.Time) {
	m.Helper()
	harness.Wait(m, "the machine's agent", bootLimit, func() error {
		if m.gone(0) {
			m.Fatalf("the machine is off; QEMU said: %s", m.stderr)
		}
		return m.guest.sync(3 * time.Second)
	})
	m.Logf("up after %.1f s (%.1f s of CPU)", time.Since(since).Seconds(), m.spent().Seconds())
}

// gone says whether QEMU has ended within that time.
func (m *machine) gone(limit time.Duration) bool {
	select {
	case <-m.exited:
		return true
	case <-time.After(limit):
		return false
	}
}

// cut takes the power away at once.
func (m *machine) cut() {
	if m.qemu != nil && m.qemu.Process != nil {
		_ = m.qemu.Process.Kill()
		<-m.exited
		m.guest.close()
	}
}

// off ends the machine as an administrator would, by systemctl poweroff or
// reboot; either ends QEMU.
func (m *machine) off(how string) {
	m.Helper()
	start := time.Now()
	// The answer may get lost on the way down.
	_, _ = m.guest.run("systemctl "+how, time.Minute)
	if !m.gone(bootLimit) {
		m.Fatalf("the machine does not go down on systemctl %s", how)
	}
	m.guest.close()
	m.Logf("down after %.1f s", time.Since(start).Seconds())
}

// reboot restarts the machine. QEMU ends where the machine resets itself, and
// is started again, which boots in half the time.
func (m *machine) reboot() {
	m.Helper()
	m.off("reboot")
	m.boot()
}

// try runs a shell script in the machine as root and returns its standard
// output; the error holds everything it wrote.
func (m *machine) try(script string) (string, error) { return m.guest.run(script, commandLimit) }

// sh is try for scripts that must succeed.
func (m *machine) sh(script string) string {
	m.Helper()
	out, err := m.try(script)
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// timed is sh that prints how long it took.
func (m *machine) timed(what, script string) string {
	m.Helper()
	start, before := time.Now(), m.spent()
	out := m.sh(script)
	m.Logf("%s: %.1f s (%.1f s of CPU)", what, time.Since(start).Seconds(), (m.spent() - before).Seconds())
	return out
}

// spent is the CPU time that QEMU has used: what a step costs however busy the
// host is. The kernel counts it in hundredths of a second.
func (m *machine) spent() time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.qemu.Process.Pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// tell prints what helps to understand a failure.
func (m *machine) tell() {
	m.Logf("the console ends:\n%s", m.console())
	if m.guest == nil || m.gone(0) {
		return
	}
	for _, script := range []string{
		"journalctl --no-pager -b -n 200 -u hostlerd -u 'hostler-provisioner@*' -u " + m.base.daemon.kind + "; journalctl --no-pager -k -n 20", "hostler get all; hostler status; " + m.base.daemon.list() + "; df -h /; systemctl --failed --no-legend",
	} {
		out, err := m.guest.run(script, time.Minute)
		m.Logf("%s\n%s%v", script, out, err)
	}
}
