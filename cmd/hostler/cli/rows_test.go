package cli

import (
	"strings"
	"testing"
	"time"

	"hostler/agent/client"
)

// The tables for people show no user and no query of an image's address, which may hold
// secrets. A table for programs shows it as declared.
func TestTablesShowNoSecretsOfAddresses(t *testing.T) {
	const secret, shown = "https://me:hunter2@m.test/d.qcow2?sig=hunter2#sha256=0a", "https://m.test/d.qcow2#sha256=0a"
	machines, images := []client.Machine{{Name: "web", Image: secret}}, []client.Image{{Reference: secret}}
	for what, row := range map[string][]string{
		"a machine": machineRow(machines[0], time.Now(), true), "an image": imageTable(images, time.Now(), true).rows[0],
	} {
		if text := strings.Join(row, " "); strings.Contains(text, "hunter2") || !strings.Contains(text, shown) {
			t.Errorf("%s: %s", what, text)
		}
	}
	for what, row := range map[string][]string{"a machine": csvMachines(machines).rows[0], "an image": csvImages(images).rows[0]} {
		if text := strings.Join(row, " "); !strings.Contains(text, secret) {
			t.Errorf("%s for a program: %s", what, text)
		}
	}
}
