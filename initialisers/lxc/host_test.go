package lxc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/internal/run"
)

// commands is a Runner that notes what it runs. It fails for the programs of
// fail, by name, and otherwise calls effect, which may be nil.
type commands struct {
	ran    []string
	fail   string
	effect func(run.Command) run.Result
}

func (c *commands) Run(_ context.Context, cmd run.Command) (run.Result, error) {
	c.ran = append(c.ran, strings.Join(append([]string{cmd.Name()}, cmd.Args...), " "))
	if c.fail == cmd.Name() {
		return run.Result{ExitCode: 1}, &run.ExitError{Name: cmd.Name(), Code: 1}
	}
	if c.effect != nil {
		return c.effect(cmd), nil
	}
	return run.Result{}, nil
}

// A failed mount gives up only a pool's file that was made just now, and only on
// a host that can mount none.
func TestFailedMountKeepsPool(t *testing.T) {
	const capable, incapable = "nodev\ttmpfs\n\tbtrfs\n", "nodev\ttmpfs\n"
	for name, c := range map[string]struct {
		there       bool
		filesystems string
		kept        bool
	}{
		"of earlier, no btrfs": {true, incapable, true},
		"of earlier":           {true, capable, true},
		"new, no btrfs":        {false, incapable, false},
		"new":                  {false, capable, true},
	} {
		files := map[string]string{"/proc/filesystems": c.filesystems, "/dev/loop-control": "", "/var/lib/lxc/.hostler/lock": ""}
		if c.there {
			files["/var/lib/lxc/.hostler/pool.img"] = "the root filesystems of machines"
		}
		i, _ := on(t, files)
		i.opts.Runner, i.opts.PoolSize = &commands{fail: "mount"}, (1 << 30)
		err := i.makePool(t.Context(), func(string) {})
		if kept := i.hasPoolFile(); kept != c.kept || (err != nil) != c.kept {
			t.Errorf("%s: kept %v, error %v", name, kept, err)
		}
		if c.there {
			if data, err := os.ReadFile(i.own("pool.img")); err != nil || string(data) != "the root filesystems of machines" {
				t.Errorf("%s: the file is %q, %v", name, data, err)
			}
		}
	}
}

// A pool that was made and is gone is not made anew: the machines are in it.
func TestPoolThatIsGoneIsNotReplaced(t *testing.T) {
	i, _ := on(t, map[string]string{"/proc/filesystems": "nodev\ttmpfs\n"})
	i.opts.Runner, i.opts.PoolSize = &commands{fail: "mount"}, (1 << 30)
	for range 2 {
		if err := i.makePool(t.Context(), func(string) {}); err != nil || i.poolLacks() != "" {
			t.Fatalf("%v, lacks %q", err, i.poolLacks())
		}
	}
	folder := filepath.Dir(i.own())
	if err := os.Rename(folder, folder+".unmounted"); err != nil {
		t.Fatal(err)
	}
	if ok, why := i.Supported(t.Context()); ok || !strings.Contains(why, i.opts.Paths.PoolMark()) {
		t.Errorf("supported %v: %s", ok, why)
	}
	err := i.makePool(t.Context(), func(string) {})
	if !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), i.opts.Paths.PoolMark()) || i.hasPool() {
		t.Errorf("a pool is there: %v, error %v", i.hasPool(), err)
	}
	if err := os.Rename(folder+".unmounted", folder); err != nil {
		t.Fatal(err)
	}
	if err := i.makePool(t.Context(), func(string) {}); err != nil || i.poolLacks() != "" {
		t.Errorf("mounted again: %v, lacks %q", err, i.poolLacks())
	}
	if err := errors.Join(os.Remove(i.opts.Paths.PoolMark()), os.RemoveAll(folder)); err != nil {
		t.Fatal(err)
	}
	if err := i.makePool(t.Context(), func(string) {}); err != nil || !i.hasPool() {
		t.Errorf("after the operator's decision: %v", err)
	}
}

// Steps that did not come to pass for a mounted pool are repeated; after the last
// of them, the pool lacks nothing.
func TestInterruptedPoolIsCompleted(t *testing.T) {
	const unit = "pool.mount"
	for name, c := range map[string]struct {
		file     string
		programs []string
	}{
		"systemd":    {"/run/systemd/system/x", []string{"btrfs", "systemd-escape", "systemctl"}},
		"no systemd": {"/run/x", []string{"btrfs"}},
	} {
		i, root := on(t, map[string]string{
			c.file: "", "/etc/systemd/system/other.mount": "", "/var/lib/lxc/.hostler/pool.img": "", "/var/lib/lxc/.hostler/pool/x": "",
		})
		i.mounted = func() bool { return true }
		wanted := filepath.Join(root, wantedUnits)
		host := &commands{effect: func(cmd run.Command) run.Result {
			if cmd.Args[0] == "enable" {
				if err := errors.Join(os.MkdirAll(wanted, 0o755), os.Symlink("../"+unit, filepath.Join(wanted, unit))); err != nil {
					t.Error(err)
				}
			}
			return run.Result{Stdout: []byte(unit + "\n")}
		}}
		i.opts.Runner = host
		for _, host.fail = range c.programs {
			if err := i.makePool(t.Context(), func(string) {}); err == nil || i.poolLacks() == "" {
				t.Errorf("%s: without %s: %v, lacks %q", name, host.fail, err, i.poolLacks())
			}
		}
		host.fail, host.ran = "", nil
		for range 2 {
			if err := i.makePool(t.Context(), func(string) {}); err != nil || i.poolLacks() != "" {
				t.Errorf("%s: %v, lacks %q", name, err, i.poolLacks())
			}
		}
		if ran := strings.Join(host.ran, "\n"); strings.Count(ran, "btrfs quota enable") != 1 || strings.Count(ran, "systemctl") != len(c.programs)-1 {
			t.Errorf("%s: ran %q", name, host.ran)
		}
	}
}

// A missing bridge is started only if its configuration is the package's or
// hostler's. Another configuration is the administrator's to start.
func TestBridgeOfAdministratorIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		start bool
	}{
		"the package's":      {"USE_LXC_BRIDGE=\"true\"\n\n# Honor\n", true},
		"hostler's":          {networkText("10.0.3.1/24"), true},
		"an administrator's": {"USE_LXC_BRIDGE=\"true\"\nLXC_BRIDGE=\"br9\"\n", false},
		"switched off":       {"USE_LXC_BRIDGE=\"false\"\n", false},
	} {
		i, root := on(t, map[string]string{networkFile: c.text, "/run/systemd/system/x": ""})
		bridge := filepath.Join(root, "/sys/class/net", Bridge)
		host := &commands{effect: func(run.Command) run.Result {
			if err := os.MkdirAll(bridge, 0o755); err != nil {
				t.Error(err)
			}
			return run.Result{}
		}}
		i.opts.Runner, i.opts.Full = host, host
		err := i.startNetwork(t.Context(), func(string) {})
		if c.start && (err != nil || strings.Join(host.ran, ", ") != "systemctl restart "+networkUnit) {
			t.Errorf("%s: %v, ran %q", name, err, host.ran)
		}
		if !c.start && (!fault.Is(err, fault.NeedsOperator) || len(host.ran) > 0) {
			t.Errorf("%s: %v, ran %q", name, err, host.ran)
		}
		if _, err := os.Lstat(filepath.Join(root, networkDropIn)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a drop-in was written: %v", name, err)
		}
	}
}
