package lxc

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/sysctl"
)

type noPackages struct{}

func (noPackages) Missing([]string) ([]string, error)                      { return nil, nil }
func (noPackages) Unavailable(context.Context, []string) ([]string, error) { return nil, nil }
func (noPackages) Unfinished(...string) bool                               { return false }
func (noPackages) Install(context.Context, []string, func(string)) error {
	return errors.New("no mirror")
}
func (noPackages) FetchLists(context.Context, func(string)) error                    { return nil }
func (noPackages) Satisfied([]sysctl.Setting) (bool, string)                         { return true, "" }
func (noPackages) Writable(string) bool                                              { return true }
func (noPackages) Apply(context.Context, string, []sysctl.Setting) ([]string, error) { return nil, nil }

// on returns the initialiser of a host made of files, by name.
func on(t *testing.T, files map[string]string) (*Initialiser, string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "state"), 0o755); err != nil {
		t.Fatal(err)
	}
	i := New(Options{
		Packages: noPackages{}, Sysctl: noPackages{}, Paths: paths.New(root, "", filepath.Join(root, "state"), ""), Path: "/var/lib/lxc", Namespace: "hostler",
		IDs: func() (uint32, uint32, error) { return 100000, 100000, nil }, Logger: slog.New(slog.DiscardHandler),
	})
	return i, root
}

// A row of root begins behind all other ranges, and is added only once.
func TestRootGetsIDs(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "root:100000:65536\n",
		"me:100000:65536":               "me:100000:65536\nroot:165536:65536\n",
		"me:900000:100\nroot:100000:10": "me:900000:100\nroot:100000:10\nroot:900100:65536\n",
		"x:zz:1\n":                      "x:zz:1\nroot:100000:65536\n",
	} {
		got, usable := withRow(text)
		if usable || got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
		if again, usable := withRow(got); !usable || again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	}
}

// The bridge's configuration is written where no person wrote it.
func TestNetworkIsConfiguredOnlyWhereNobodyDid(t *testing.T) {
	const route = "Iface\tDestination\n"
	for name, c := range map[string]struct {
		files map[string]string
		write bool
	}{
		"absent":        {map[string]string{}, true},
		"the package's": {map[string]string{networkFile: "USE_LXC_BRIDGE=\"true\"\n\n# Honor\n"}, true},
		"a person's":    {map[string]string{networkFile: "USE_LXC_BRIDGE=\"true\"\nLXC_ADDR=\"10.9.9.1\"\n"}, false},
		"switched off":  {map[string]string{networkFile: "USE_LXC_BRIDGE=\"false\"\n"}, false},
		"bridge there":  {map[string]string{"/sys/class/net/" + Bridge + "/mtu": "1500"}, false},
	} {
		c.files["/proc/net/route"] = route
		i, root := on(t, c.files)
		for range 2 {
			if err := i.writeNetwork(); err != nil {
				t.Fatal(err)
			}
		}
		data, _ := os.ReadFile(filepath.Join(root, networkFile))
		if got := strings.HasPrefix(string(data), networkMark); got != c.write {
			t.Errorf("%s: the file is %q", name, data)
		}
		if c.write && (!strings.Contains(string(data), ",infinite\"\n") || !strings.Contains(string(data), "LXC_BRIDGE=\""+Bridge+"\"")) {
			t.Errorf("%s: the file is %q", name, data)
		}
	}
}

// With NoBridge, the package is told to make no bridge, and none is missed. With
// the setting gone, the file gets a subnet.
func TestNoBridge(t *testing.T) {
	const off = networkMark + "\nUSE_LXC_BRIDGE=\"false\"\n"
	for name, c := range map[string]struct{ text, instance, want string }{
		"absent":           {"", ".hidden", off},
		"hostler's":        {networkText("10.0.3.1/24"), ".hidden", off},
		"with an instance": {networkText("10.0.3.1/24"), "db", networkText("10.0.3.1/24")},
		"a person's":       {"LXC_ADDR=\"10.9.9.1\"\n", ".hidden", "LXC_ADDR=\"10.9.9.1\"\n"},
	} {
		i, root := on(t, map[string]string{networkFile: c.text, "/proc/net/route": "Iface\tDestination\n", "/var/lib/lxc/" + c.instance + "/config": ""})
		i.opts.NoBridge = true
		if err := i.writeNetwork(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if data, _ := os.ReadFile(filepath.Join(root, networkFile)); string(data) != c.want {
			t.Errorf("%s: the file is %q", name, data)
		}
		if err := i.startNetwork(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, why := i.Satisfied(t.Context()); strings.Contains(why, Bridge) {
			t.Errorf("%s: lacks %s", name, why)
		}
		if i.opts.NoBridge = false; c.want != off {
			continue
		}
		if err := i.writeNetwork(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if data, _ := os.ReadFile(filepath.Join(root, networkFile)); !subnetOf(string(data)).IsValid() {
			t.Errorf("%s: afterwards the file is %q", name, data)
		}
	}
}

// hostler's own configuration keeps its subnet unless the host uses it. Then it
// moves only if no instance has an address there.
func TestSubnetIsKept(t *testing.T) {
	const (
		none    = "Iface\tDestination\n"
		overlap = "eth0\t004D12C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	)
	ours := networkText("198.18.77.1/24")
	for name, c := range map[string]struct {
		text, route, instance string
		kept, operator        bool
	}{
		"unused":             {ours, none, ".hidden", true, false},
		"unused, instances":  {ours, none, "db", true, false},
		"overlap":            {ours, overlap, ".hidden", false, false},
		"overlap, instances": {ours, overlap, "db", true, true},
		"no subnet":          {networkMark + "\n", none, ".hidden", false, false},
	} {
		i, root := on(t, map[string]string{networkFile: c.text, "/proc/net/route": c.route, "/var/lib/lxc/" + c.instance + "/config": ""})
		err := i.writeNetwork()
		if fault.Is(err, fault.NeedsOperator) != c.operator || (err != nil) != c.operator {
			t.Errorf("%s: %v", name, err)
		}
		data, _ := os.ReadFile(filepath.Join(root, networkFile))
		if (string(data) == c.text) != c.kept || !c.kept && !subnetOf(string(data)).IsValid() {
			t.Errorf("%s: the file is %q", name, data)
		}
	}
}

// Each lack of the host is named with its remedy; looking changes nothing.
func TestLacksAreNamed(t *testing.T) {
	i, root := on(t, map[string]string{
		"/proc/sys/user/max_user_namespaces": "0\n", "/proc/self/ns/user": "", "/sys/fs/cgroup/cgroup.controllers": "cpu io\n",
		"/proc/self/uid_map": "0 1000000 65536\n", "/sys/module/apparmor/parameters/enabled": "Y\n", "/sys/kernel/security/apparmor/profiles": "other (enforce)\n",
		"/etc/os-release": "ID=debian\nVERSION_ID=12\n",
	})
	ok, why := i.Supported(t.Context())
	for _, words := range []string{"user.max_user_namespaces", "no cgroup controller memory", "larger range of ids", profileFile + " is missing"} {
		if ok || !strings.Contains(why, words) {
			t.Errorf("supported %v, %q lacks %q", ok, why, words)
		}
	}
	ok, why = i.Satisfied(t.Context())
	for _, words := range []string{"LXC is not there", "the bridge lxcbr0", "AppArmor profile lxc-hostler", "a pool of root filesystems"} {
		if ok || !strings.Contains(why, words) {
			t.Errorf("satisfied %v, %q lacks %q", ok, why, words)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "/var/lib/lxc")); err == nil {
		t.Error("looking made a folder")
	}
}

func TestCovers(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "0 0 4294967295": true, "0 1000000 65536": false, "0 1 10\n100000 5 65536\n": true, "100001 5 65536": false, "x": false,
	} {
		if covers(text, 100000) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
