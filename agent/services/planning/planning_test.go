package planning

import (
	"os"
	"strings"
	"testing"

	"hostler/agent/provisioner"
)

// The manual of the JSON output lists every action that a plan can show.
func TestActionsOfPlansAreDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(manual), "\nA step:")
	documented, _, _ := strings.Cut(steps, "\n##")
	words := []string{"initialise"}
	for _, action := range []provisioner.Action{
		provisioner.ActionDelete, provisioner.ActionHarvest, provisioner.ActionRelease, provisioner.ActionForget, provisioner.ActionStop,
		provisioner.ActionUpdate, provisioner.ActionRecreate, provisioner.ActionCreate, provisioner.ActionStart,
		provisioner.ActionRestart, provisioner.ActionConflict,
	} {
		words = append(words, stepView(provisioner.Step{Action: action}).Action)
	}
	for _, known := range storageWords {
		words = append(words, known.word)
	}
	for _, word := range words {
		if !strings.Contains(documented, "`"+word+"`") {
			t.Errorf("%s is not documented", word)
		}
	}
}
