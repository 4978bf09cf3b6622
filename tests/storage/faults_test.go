//go:build integration

package storage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/agent/api"
	"hostler/tests/harness"
)

// says waits until a volume or filesystem says all of the words.
func (w world) says(kind, name string, words ...string) api.Storage {
	w.t.Helper()
	var row api.Storage
	harness.Wait(w.t, kind+" "+name, 30*time.Second, func() error {
		row = w.rows(kind)[name]
		for _, word := range words {
			if text := string(row.Status) + ": " + row.Message; !strings.Contains(text, word) {
				return fmt.Errorf("%q says nothing of %q", text, word)
			}
		}
		return nil
	})
	return row
}

// What is in the way is told, nothing is harmed, and what was mended goes on.
func TestWhatIsInTheWay(t *testing.T) {
	w := start(t)
	const site = `version: 1
volumes: {data: {provider: loop, size: %s}}
%s
machines:
  app: {type: lxd, image: "lxd:tiny", storage: [%s]}
`
	declare := func(size, filesystems, given string) string {
		file := w.File("site", fmt.Sprintf(site, size, filesystems, given))
		w.Run("apply", "-f", file)
		return file
	}
	// What the host cannot hold.
	declare("100TiB", "", "{volume: data}")
	w.says("volumes", "data", "pending", "100 TiB are needed")
	harness.Wait(t, "the machine to say so", 30*time.Second, func() error {
		if row := w.Machines()["app"]; row.Status != "pending" || !strings.Contains(row.Message, "volume/data") {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
	file := declare("64MiB", "", "{volume: data}")
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.nothingToDo(file, "after the size was mended")

	// What is not ours to format. The host writes it behind the machine's back.
	device := w.rows("volumes")["data"].Device
	harness.Run(t, "mkfs.ext4", "-q", "-L", "family", device)
	declare("64MiB", "filesystems: {www: {volume: data, type: xfs}}", "{filesystem: www, path: /srv}")
	w.says("filesystems", "www", "error", "too small")
	declare("64MiB", "filesystems: {www: {volume: data}}", "{filesystem: www, path: /srv}")
	w.says("filesystems", "www", "error", "ext4", "family", "wipe: true")
	if label := strings.TrimSpace(harness.Run(t, "e2label", w.rows("volumes")["data"].Device)); label != "family" {
		t.Errorf("what was refused bears %q now", label)
	}
	declare("64MiB", "filesystems: {www: {volume: data, wipe: true}}", "{filesystem: www, path: /srv}")
	w.Run("wait", "declaration/site", "--for", "ready", "--timeout", "1m")
	w.must("0", "echo mine > /srv/file")

	// Data that somebody removes while it is used.
	image := filepath.Join(w.State(), "volumes", "data.img")
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	w.Run("retry", "volume/data")
	w.says("volumes", "data", "error", "data.img")
	if out := w.must("0", "cat /srv/file"); out != "mine" {
		t.Errorf("the machine, which still has it, reads %q", out)
	}
	w.Run("delete", "declaration/site", "--wait", "--timeout", "1m")
	w.bare("")
}
