package persist

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/paths"
	"hostler/internal/run"
)

// clients runs processes that have the names and the pid files of DHCP clients.
type clients struct {
	t        *testing.T
	k        *Keeper
	err      error // of the next launches
	launched []string
}

func newClients(t *testing.T) *clients {
	t.Helper()
	c := &clients{t: t}
	root := host(t, map[string]string{"run/dhcpcd/unused": "", "etc/network/interfaces": "iface eth0 inet dhcp\n"})
	c.k = &Keeper{Paths: paths.Paths{Root: root, RunDir: t.TempDir()}, Namespace: "hostler", Dhclient: c, Dhcpcd: c}
	return c
}

// start starts a process as the client of a link.
func (c *clients) start(program, file string) (pid int) {
	c.t.Helper()
	// A copy, because the name of the executed file tells the clients apart.
	text, err := os.ReadFile("/bin/cat")
	if err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.t.TempDir(), program)
	if err := os.WriteFile(path, text, 0o700); err != nil {
		c.t.Fatal(err)
	}
	process := exec.Command(path)
	stdin, err := process.StdinPipe() // ends the process if the test dies
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = stdin.Close(); _ = process.Wait() })
	pid = process.Process.Pid
	if err := os.WriteFile(c.k.Paths.Host(file), fmt.Appendln(nil, pid), 0o644); err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// Run implements run.Runner.
func (c *clients) Run(ctx context.Context, command run.Command) (run.Result, error) {
	if command.Path == paths.Sh {
		return run.Host{}.Run(ctx, command)
	}
	if c.err != nil {
		return run.Result{}, c.err
	}
	c.launched = append(c.launched, command.String())
	c.start(dhcpcd, "/run/dhcpcd/"+command.Job+".pid")
	return run.Result{}, nil
}

// marks returns the links with a paused client.
func (c *clients) marks() (links []string) {
	c.t.Helper()
	found, err := filepath.Glob(c.k.mark("[^.]*"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, path := range found {
		links = append(links, filepath.Base(path))
	}
	return links
}

// If dhcpcd cannot start on the other link, the next attempt still finds the
// client that has ended.
func TestAFailedMoveKeepsTheClient(t *testing.T) {
	c := newClients(t)
	c.start(dhcpcd, "/run/dhcpcd/eth0.pid")
	c.err = errors.New("no memory")
	if err := c.k.moveClient(t.Context(), "eth0", "br-lan"); err == nil {
		t.Error("the failure is not reported")
	}
	if client, err := c.k.client("eth0"); err != nil || client == nil || client.program != dhcpcd || client.pid != 0 {
		t.Fatalf("the client is %+v, %v", client, err)
	}
	c.err = nil
	if err := c.k.moveClient(t.Context(), "eth0", "br-lan"); err != nil {
		t.Fatal(err)
	}
	if client, err := c.k.client("br-lan"); err != nil || client == nil || client.pid == 0 {
		t.Errorf("the bridge's client is %+v, %v", client, err)
	}
	if marks := c.marks(); len(marks) > 0 || len(c.launched) != 1 {
		t.Errorf("marks %v, launched %v", marks, c.launched)
	}
}

// A client that the administrator started while the link's client was paused
// keeps running, and Resume starts no second one.
func TestResumeLeavesARunningClient(t *testing.T) {
	for program, file := range map[string]string{dhclient: "/run/dhclient.eth0.pid", dhcpcd: "/run/dhcpcd/eth0.pid"} {
		t.Run(program, func(t *testing.T) {
			c := newClients(t)
			c.start(dhcpcd, "/run/dhcpcd/eth0.pid")
			if err := c.k.Pause(t.Context(), "eth0"); err != nil {
				t.Fatal(err)
			}
			if marks := c.marks(); len(marks) != 1 {
				t.Fatalf("marks %v", marks)
			}
			pid := c.start(program, file)
			if left, err := c.k.Resume(t.Context(), func(string) bool { return true }); left || err != nil {
				t.Fatal(err)
			}
			if found, err := processIn(c.k.Paths.Host(file), program); err != nil || found != pid {
				t.Errorf("process %d runs instead of %d, %v", found, pid, err)
			}
			if marks := c.marks(); len(marks) > 0 || len(c.launched) > 0 {
				t.Errorf("marks %v, launched %v", marks, c.launched)
			}
		})
	}
}

// dhcpcd can move to a bridge only from the NIC whose hardware address the
// bridge has.
func TestDhcpcdOfALaterNICIsAnObstacle(t *testing.T) {
	c := newClients(t)
	c.start(dhcpcd, "/run/dhcpcd/eth0.pid")
	if why := c.k.Obstacle(NIC{Name: "eth0", Index: 2, Leased: true}); why != "" {
		t.Errorf("the first NIC: %s", why)
	}
	want := "dhcpcd renews the lease of eth0, and only the lease of the network's first interface can move to the bridge; run `ifdown eth0`, and write `iface eth0 inet manual` in /etc/network/interfaces"
	if why := c.k.Obstacle(NIC{Name: "eth0", Index: 2, Leased: true, Later: true}); why != want {
		t.Errorf("a later NIC: %s", why)
	}
}

// A NIC is refused if the client that renews its lease would not renew it for the
// bridge.
func TestClientsThatAreObstacles(t *testing.T) {
	const table = "  sl  local_address rem_address   st\n   7: %s:0044 00000000:0000 07\n"
	for name, c := range map[string]struct {
		files, client map[string]string // a client's pid file, by program
		static        bool
		before        bool
		want          string // part of the reason
	}{
		"NetworkManager, before":      {files: map[string]string{"run/NetworkManager/devices/2": "[device]\nmanaged=true\n"}, before: true},
		"dhclient, before":            {client: map[string]string{dhclient: "/run/dhclient.eth0.pid"}, before: true},
		"any client, before":          {files: map[string]string{"proc/net/udp": fmt.Sprintf(table, "00000000")}, before: true},
		"dhcpcd, before":              {client: map[string]string{dhcpcd: "/run/dhcpcd/eth0.pid"}, before: true, want: "dhcpcd renews the lease of eth0, which"},
		"NetworkManager":              {files: map[string]string{"run/NetworkManager/devices/2": "[device]\nmanaged=true\n"}, want: "NetworkManager renews the lease of eth0"},
		"NetworkManager, its profile": {files: hosts["NetworkManager"].files},
		"NetworkManager, static":      {files: map[string]string{"run/NetworkManager/devices/2": "[device]\nmanaged=true\n"}, static: true},
		"networkd":                    {files: map[string]string{"run/systemd/netif/links/2": "NETWORK_FILE=/etc/systemd/network/a.network\nADMIN_STATE=configured\n", "proc/net/udp": fmt.Sprintf(table, "0A00000A")}},
		"ifupdown and dhclient":       {files: map[string]string{"etc/network/interfaces": "iface eth0 inet dhcp\n"}, client: map[string]string{dhclient: "/run/dhclient.eth0.pid"}},
		"ifupdown, no client":         {files: map[string]string{"etc/network/interfaces": "iface eth0 inet dhcp\n"}, want: "a DHCP client that hostler does not know"},
		"dhclient of IPv6":            {files: map[string]string{"etc/network/interfaces": "iface eth0 inet6 dhcp\n"}, client: map[string]string{dhclient: "/run/dhclient6.eth0.pid"}, static: true, want: "dhclient renews the IPv6 lease of eth0"},
		"unmanaged dhclient":          {client: map[string]string{dhclient: "/run/dhclient.eth0.pid"}, want: "dhclient renews the lease of eth0, which /etc/network/interfaces does not name"},
		"unmanaged dhcpcd":            {client: map[string]string{dhcpcd: "/run/dhcpcd/eth0.pid"}, want: "dhcpcd renews the lease of eth0, which"},
		"dhcpcd of all":               {client: map[string]string{dhcpcd: "/run/dhcpcd/pid"}, want: "dhcpcd configures all interfaces"},
		"any client":                  {files: map[string]string{"proc/net/udp": fmt.Sprintf(table, "00000000")}, want: "a DHCP client that hostler does not know"},
		"any client, static":          {files: map[string]string{"proc/net/udp": fmt.Sprintf(table, "00000000")}, static: true},
		"no client":                   {files: map[string]string{"proc/net/udp": strings.ReplaceAll(fmt.Sprintf(table, "00000000"), ":0044", ":0043")}},
	} {
		t.Run(name, func(t *testing.T) {
			clients := newClients(t)
			files := map[string]string{"run/dhcpcd/unused": ""}
			maps.Copy(files, c.files)
			clients.k.Paths.Root = host(t, files)
			for program, file := range c.client {
				clients.start(program, file)
			}
			why := clients.k.Obstacle(NIC{Name: "eth0", Index: 2, Leased: !c.static, Before: c.before})
			if c.want == "" && why != "" || !strings.Contains(why, c.want) {
				t.Errorf("%q, want %q", why, c.want)
			}
		})
	}
}

// Resume tries each paused client and reports whether one remains.
func TestResumeReportsTheClientsThatRemain(t *testing.T) {
	c := newClients(t)
	for _, link := range []string{"eth0", "eth1", "eth2"} {
		c.start(dhcpcd, "/run/dhcpcd/"+link+".pid")
		if err := c.k.Pause(t.Context(), link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(c.k.mark(".eth3.hostler-tmp"), nil, 0o600); err != nil { // of a mark that was not written
		t.Fatal(err)
	}
	free := func(link string) bool { return link != "eth2" }
	c.err = errors.New("no memory")
	if left, err := c.k.Resume(t.Context(), free); !left || err == nil || strings.Count(err.Error(), "no memory") != 2 {
		t.Errorf("two fail: %v, %v", left, err)
	}
	c.err = nil
	if left, err := c.k.Resume(t.Context(), free); !left || err != nil || len(c.launched) != 2 {
		t.Errorf("one is under a bridge: %v, %v, launched %v", left, err, c.launched)
	}
	if left, err := c.k.Resume(t.Context(), func(string) bool { return true }); left || err != nil || len(c.marks()) > 0 {
		t.Errorf("the last: %v, %v, marks %v", left, err, c.marks())
	}
}
