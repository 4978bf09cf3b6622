package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	before := Snapshot{"links": {"lo", "eth0"}, "loops": {"a", "a"}, "gone": {"x"}}
	after := Snapshot{"links": {"lo", "br0"}, "loops": {"a"}, "new": {"y"}}
	want := []string{"gone: - x", "links: + br0", "links: - eth0", "loops: - a", "new: + y"}
	if got, _ := Diff(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, _ := Diff(before, before); got != nil {
		t.Errorf("a snapshot differs from itself: %q", got)
	}
}

// An installation may upgrade packages that were there: that is listed, and no
// difference; a package that came, went or lost its files is.
func TestUpgradesAreNoDifference(t *testing.T) {
	before := Snapshot{"packages": {"passwd 4.13 installed", "login 4.13 installed", "old 1 installed", "half 1 installed"}}
	after := Snapshot{"packages": {"passwd 4.14 installed", "login 4.13 installed", "lxd 5 installed", "half 2 config-files"}}
	got, upgrades := Diff(before, after)
	want := []string{"packages: + half 2 config-files", "packages: + lxd 5 installed", "packages: - half 1 installed", "packages: - old 1 installed"}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(upgrades, []string{"passwd from 4.13 to 4.14"}) {
		t.Errorf("got %q, upgrades %q", got, upgrades)
	}
}

// A new link brings its parameters, and is reported once.
func TestParametersOfNewLinks(t *testing.T) {
	before := Snapshot{"parameters": {"net/ipv4/conf/eth0/forwarding = 0", "net/ipv4/ip_forward = 0"}}
	after := Snapshot{"parameters": {"net/ipv4/conf/eth0/forwarding = 1", "net/ipv4/conf/br0/forwarding = 1", "net/ipv4/ip_forward = 0"}}
	want := []string{"parameters: + net/ipv4/conf/eth0/forwarding = 1", "parameters: - net/ipv4/conf/eth0/forwarding = 0"}
	if got, _ := Diff(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFilesFindsModesAndContents(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "kept")
	write := func(content string, mode os.FileMode) []string {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		return files(dir)
	}
	first := write("one", 0o600)
	if len(first) != 2 {
		t.Fatalf("found %q, want the folder and the file", first)
	}
	if again := write("one", 0o600); !reflect.DeepEqual(first, again) {
		t.Errorf("the same file looks different: %q, %q", first, again)
	}
	if other := write("two", 0o600); reflect.DeepEqual(first, other) {
		t.Error("another content is not seen")
	}
	if other := write("one", 0o644); reflect.DeepEqual(first, other) {
		t.Error("another mode is not seen")
	}
}

// Values that change by themselves between two snapshots are no leaks.
func TestLinesDropsWhatMoves(t *testing.T) {
	a := lines([]byte(`{"nftables":[{"metainfo":{"version":"1"}},{"rule":{"handle":4,"expr":[{"counter":{"packets":1,"bytes":2}}]}}]}`), "nftables")
	b := lines([]byte(`{"nftables":[{"rule":{"handle":9,"expr":[{"counter":{"packets":7,"bytes":8}}]}}]}`), "nftables")
	if len(a) != 1 || !reflect.DeepEqual(a, b) {
		t.Errorf("got %q and %q, want one equal line each", a, b)
	}
}

func TestListenersDoNotDependOnColumns(t *testing.T) {
	narrow := listeners([]byte("LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\n"))
	wide := listeners([]byte("LISTEN 0      128        0.0.0.0:22      0.0.0.0:*\n"))
	if len(narrow) != 1 || narrow[0] != "0.0.0.0:22" || wide[0] != narrow[0] {
		t.Errorf("%q %q", narrow, wide)
	}
}

// Only the empty tables of LXD and Incus are passed over.
func TestTablesThatLXDLeaves(t *testing.T) {
	got := rules([]byte(`{"nftables":[{"metainfo":{"version":"1"}},{"table":{"family":"bridge","name":"lxd","handle":2}},
		{"table":{"family":"inet","name":"incus","handle":5}},{"table":{"family":"inet","name":"hostler","handle":3}},{"chain":{"family":"inet","table":"lxd","name":"fwd.x","handle":4}}]}`))
	if len(got) < 2 || !strings.Contains(strings.Join(got, "\n"), "fwd.x") || !strings.Contains(strings.Join(got, "\n"), "hostler") || strings.Contains(strings.Join(got, "\n"), `"name":"lxd"`) || strings.Contains(strings.Join(got, "\n"), "incus") {
		t.Errorf("%q", got)
	}
}

// A container of classic LXC that was left is found in each of its three places;
// containers of LXD are not.
func TestContainersThatAreLeft(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{
		"lib/web", "cgroup/pids/lxc.payload.hostler.web", "cgroup/pids/lxc.payload.example", "cgroup/system.slice/lxc.monitor.hostler.web/x",
	} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sockets := filepath.Join(dir, "unix")
	table := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0: 00000002 00000000 00010000 0001 01 11 @/var/lib/hostler/lxc/web/command\n" +
		"0: 00000003 00000000 00000000 0001 03 12 @/var/lib/hostler/lxc/web/command\n" +
		"0: 00000002 00000000 00010000 0001 01 13 @/var/lib/lxd/containers/example/command\n" +
		"0: 00000002 00000000 00010000 0001 01 14\n"
	if err := os.WriteFile(sockets, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	got := containers(filepath.Join(dir, "lib"), filepath.Join(dir, "cgroup"), sockets)
	want := []string{
		filepath.Join(dir, "cgroup/pids/lxc.payload.hostler.web"), filepath.Join(dir, "cgroup/system.slice/lxc.monitor.hostler.web"),
		filepath.Join(dir, "lib/web"), "@/var/lib/hostler/lxc/web/command",
	}
	if slices.Sort(want); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
