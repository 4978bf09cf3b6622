//go:build integration

package conffiles

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// With the capabilities of the package's unit, a half-written file of another owner
// is not read, however long its writer pauses.
func TestHalfWrittenFileOfAnotherOwnerIsNotRead(t *testing.T) {
	const marked = "HOSTLER_TEST_CONFINED"
	if os.Getenv(marked) == "" {
		unit, err := os.ReadFile("../../debian/hostler.hostlerd.service")
		if err != nil {
			t.Fatal(err)
		}
		_, set, _ := strings.Cut(string(unit), "\nCapabilityBoundingSet=")
		set, _, _ = strings.Cut(set, "\n")
		set = "-all," + strings.ToLower(strings.ReplaceAll("+"+strings.Join(strings.Fields(set), ",+"), "CAP_", ""))
		confined := exec.Command("setpriv", "--bounding-set="+set, os.Args[0], "-test.run=^"+t.Name()+"$")
		confined.Env = append(os.Environ(), marked+"=yes")
		if out, err := confined.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	file := filepath.Join(t.TempDir(), "site.yaml")
	writer, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	_, err = writer.WriteString("version: 1\n")
	if err := errors.Join(err, os.Chown(file, 12345, 12345), os.Chtimes(file, long, long)); err != nil {
		t.Fatal(err)
	}
	if content, err := readWhole(file, 1024); !errors.Is(err, errBeingWritten) {
		t.Errorf("read half-written: %q, %v", content, err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if content, err := readWhole(file, 1024); err != nil || string(content) != "version: 1\n" {
		t.Errorf("whole: %q, %v", content, err)
	}
}
