//go:build integration

package lxd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/lxd"
	"hostler/containerbroker/lxd/lxdtest"
	"hostler/internal/fault"
)

// withCloudInit is a tiny image's init that looks like an OpenRC system whose
// cloud-init takes a while and then leaves the given result.
func withCloudInit(result string) string {
	return strings.Replace(lxdtest.TinyInit, "echo init up\n", `mkdir -p /run/openrc /run/cloud-init
cat >/bin/cloud-init <<'EOT'
#!/bin/sh
case "$*" in
"status --wait") until [ -e /run/cloud-init/result.json ]; do sleep 0.1; done;;
status) echo "status: done";;
esac
EOT
busybox chmod 755 /bin/cloud-init
(sleep 1; echo '`+result+`' >/run/cloud-init/result.new; busybox mv /run/cloud-init/result.new /run/cloud-init/result.json) &
`, 1)
}

// asSystemd is a tiny image's init that looks like systemd, interrupts the
// first wait for its boot and then reports the given state.
func asSystemd(state string) string {
	return strings.Replace(lxdtest.TinyInit, "echo init up\n", `mkdir -p /run/systemd
touch /run/systemd/private
cat >/bin/systemctl <<'EOT'
#!/bin/sh
if [ -e /run/asked ]; then touch /run/waited; echo `+state+`; else touch /run/asked; echo starting; exit 1; fi
EOT
busybox chmod 755 /bin/systemctl
busybox ln -s busybox /bin/timeout
echo systemd >/proc/1/comm
`, 1)
}

// killingTheCheck is an init that runs on, and kills the check in the guest while
// it waits for an address. It knows the check by a file that the check reads.
const killingTheCheck = `#!/bin/sh
export PATH=/bin:/sbin
while :; do
  for p in /proc/[0-9]*; do
    case "$(cat $p/cmdline)" in *fib_trie*) kill -9 ${p##*/};; esac
  done
  sleep 0.2
done
`

func TestReadiness(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler", AddressTimeout: 2 * time.Second})
	for name, c := range map[string]struct {
		init    string
		kind    fault.Kind
		says    string
		wants   containerbroker.Readiness
		address bool
	}{
		"plain":     {init: "", wants: containerbroker.Readiness{Init: "init"}, address: true},
		"cloudy":    {init: withCloudInit(`{"v1": {"errors": []}}`), wants: containerbroker.Readiness{Init: "init", CloudInit: "done"}, address: true},
		"failing":   {init: withCloudInit(`{"v1": {"errors": ["no module named bang"]}}`), kind: fault.NeedsOperator, says: "no module named bang"},
		"dying":     {init: "#!/bin/sh\necho all is lost\nsleep 1\nexit 1\n", kind: fault.Transient, says: "all is lost"},
		"cut-off":   {init: killingTheCheck, kind: fault.Transient, says: "broken off"},
		"short":     {init: "#!/bin/sh\necho gone at once\nexit 1\n", kind: fault.Transient},
		"systemd":   {init: asSystemd("running"), wants: containerbroker.Readiness{Init: "systemd"}, address: true},
		"rescue":    {init: asSystemd("maintenance"), kind: fault.Transient, says: "its systemd is in state maintenance"},
		"addr-less": {init: "#!/bin/sh\nwhile :; do sleep 1; done\n", kind: fault.Transient, says: "no address"},
		"no-dhcp":   {init: "#!/bin/sh\nrm /bin/udhcpc\nwhile :; do sleep 1; done\n", wants: containerbroker.Readiness{Init: "init"}},
		"no-shell":  {init: "#!/bin/busybox sh\nrm /bin/sh\nwhile :; do busybox sleep 1; done\n"},
	} {
		t.Run(name, func(t *testing.T) {
			image := server.TinyFingerprint
			if c.init != "" {
				image = server.Import("image-"+name, c.init)
			}
			m := machine(name, image, "token")
			must(t, d.Create(t.Context(), m, nil))
			t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
			if err := d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0); err != nil && name != "short" {
				t.Fatal(err)
			}
			ready, err := d.WaitReady(t.Context(), m, nil)
			if fault.KindOf(err) != c.kind || err != nil && !strings.Contains(err.Error()+"\n"+containerbroker.Console(err), c.says) {
				t.Fatalf("%+v, %v, console %q", ready, err, containerbroker.Console(err))
			}
			if err != nil {
				return
			}
			if ready.Init != c.wants.Init || ready.CloudInit != c.wants.CloudInit || c.address != (len(ready.Addresses) > 0) {
				t.Errorf("ready as %+v", ready)
			}
		})
	}
}

// A start that LXC refuses leaves the instance stopped, and its error contains
// LXC's message.
func TestStartFailureSaysWhy(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("wont", server.Import("wont", "#!/no/such/interpreter\n"), "token")
	must(t, d.Create(t.Context(), m, nil))
	err := d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0)
	if err == nil || !strings.Contains(err.Error(), "LXC says") {
		t.Errorf("%v", err)
	}
	if found := get(t, server, m.Name); found.Status != "Stopped" {
		t.Errorf("it is %s", found.Status)
	}
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}

func TestExecStreams(t *testing.T) {
	t.Parallel()
	server := lxdtest.Start(t)
	d := lxd.New(lxd.Options{Dialect: dialect(), Socket: server.Socket, Namespace: "hostler"})
	m := machine("shell", server.TinyFingerprint, "token")
	must(t, d.Create(t.Context(), m, nil))
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))

	t.Run("a cancelled command is killed", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := d.Exec(ctx, m.Name, containerbroker.ExecRequest{Command: []string{"sh", "-c", "echo on; exec sleep 4711"}, Stdout: w})
			done <- err
		}()
		if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		deadline := time.Now().Add(20 * time.Second)
		for {
			var out bytes.Buffer
			_, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"ps"}, Stdout: &out})
			must(t, err)
			if !strings.Contains(out.String(), "sleep 4711") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("it still runs:\n%s", &out)
			}
		}
	})
	t.Run("a terminal", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// The sleep is for LXD, which drops output that a command prints right
		// before its end.
		for input, command := range map[string][]string{
			"": {"sh", "-c", `test -t 0 && test -t 1 && echo "$WORD on a terminal"; sleep 1; exit 3`},
			"echo $WORD on a terminal; sleep 1; exit 3\n": {"sh"},
		} {
			var out bytes.Buffer
			req := containerbroker.ExecRequest{
				Command: command, Env: map[string]string{"WORD": "hello"}, Terminal: true, Width: 100, Height: 30, Stdout: &out,
			}
			if input != "" {
				req.Stdin = strings.NewReader(input)
			}
			code, err := d.Exec(ctx, m.Name, req)
			if err != nil || code != 3 || !strings.Contains(out.String(), "hello on a terminal") {
				t.Errorf("%q: %d, %v, %q", command, code, err, &out)
			}
		}
	})
	t.Run("outputs are whole", func(t *testing.T) {
		for i := range 50 {
			var out, errs bytes.Buffer
			code, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{
				Command: []string{"sh", "-c", "echo out; echo err >&2"}, Stdout: &out, Stderr: &errs,
			})
			if err != nil || code != 0 || out.String() != "out\n" || errs.String() != "err\n" {
				t.Fatalf("try %d: %d, %v, %q, %q", i, code, err, &out, &errs)
			}
		}
	})
	t.Run("a command that cannot be run has a shell's exit code", func(t *testing.T) {
		for command, want := range map[string]int{"/no/such": 127, "/etc": 126} {
			for _, terminal := range []bool{false, true} {
				var text bytes.Buffer
				req := containerbroker.ExecRequest{Command: []string{command}, Stderr: &text, Terminal: terminal}
				if terminal {
					req.Stdout, req.Stderr = &text, nil
				}
				code, err := d.Exec(t.Context(), m.Name, req)
				if err != nil || code != want || !strings.Contains(text.String(), command+": ") {
					t.Errorf("%s, terminal %v: %d, %v, %q", command, terminal, code, err, &text)
				}
			}
		}
	})
	t.Run("console and its log", func(t *testing.T) {
		here, there := net.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- d.Console(ctx, m.Name, there) }()
		_, err := here.Write([]byte("\n"))
		must(t, err)
		must(t, here.Close())
		must(t, <-done)
		if ctx.Err() != nil {
			t.Error("it stayed until the deadline")
		}
		log, err := d.Log(t.Context(), m.Name)
		must(t, err)
		text, err := io.ReadAll(log)
		if err != nil || !strings.Contains(string(text), "init up") {
			t.Errorf("%q, %v", text, err)
		}
		must(t, log.Close())
		// Reading emptied the log, which is no error.
		log, err = d.Log(t.Context(), m.Name)
		must(t, err)
		if text, err := io.ReadAll(log); err != nil || len(text) != 0 {
			t.Errorf("for the second time: %q, %v", text, err)
		}
		must(t, log.Close())
		if _, err := d.Log(t.Context(), "absent"); !fault.Is(err, fault.NotFound) || strings.Contains(err.Error(), "{") {
			t.Errorf("of an absent instance: %v", err)
		}
	})
	must(t, d.Delete(t.Context(), m.Name, m.Stamp))
}
