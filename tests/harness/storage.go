package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Mounts lists the mounts at or below dir, the last mounted first.
func Mounts(t testing.TB, dir string) (points []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if point := strings.Fields(line)[4]; point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

// Loops lists the loop devices whose files are below dir.
func Loops(t testing.TB, dir string) (devices []string) {
	t.Helper()
	out := Run(t, "losetup", "--json", "--list", "--output", "NAME,BACK-FILE")
	if strings.TrimSpace(out) == "" {
		return nil
	}
	var all struct {
		Loopdevices []struct {
			Name string `json:"name"`
			File string `json:"back-file"`
		} `json:"loopdevices"`
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	for _, d := range all.Loopdevices {
		if strings.HasPrefix(d.File, dir+"/") {
			devices = append(devices, d.Name)
		}
	}
	return devices
}

// PullStorage takes away every mount and loop device below dir, as the end of
// a host does.
func PullStorage(t testing.TB, dir string) {
	t.Helper()
	for _, point := range Mounts(t, dir) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
			t.Errorf("cannot unmount %s: %v", point, err)
		}
	}
	for _, device := range Loops(t, dir) {
		Run(t, "losetup", "--detach", device)
	}
}

// State is the agent's state folder.
func (a *Agent) State() string { return filepath.Join(a.Dir, "state") }
