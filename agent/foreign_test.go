package agent

import (
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Instances that nobody declared are exported so that what is written can be
// read again; one that cannot be declared as it is, is told of, and is not
// taken over either.
func TestForeignInstancesThatCannotBeDeclared(t *testing.T) {
	l := newLossyHost(t)
	l.open()
	defer l.close()
	for _, name := range []string{"web", "Web1", "win_10", "db-"} {
		l.lxd.Add(containerbroker.Instance{Name: name, Status: containerbroker.StatusStopped, ImageID: "abc"})
	}
	l.lxd.Add(containerbroker.Instance{Name: "bare", Status: containerbroker.StatusStopped})
	a := adopter{l.host}
	text, err := a.Export(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := spec.Parse("again", text)
	if err != nil {
		t.Fatalf("cannot be read again: %v\n%s", err, text)
	}
	if names := d.Objects(); !slices.Equal(names, []string{"machine/bare", "machine/web"}) {
		t.Errorf("exported are %v", names)
	}
	for _, name := range []string{"Web1", "win_10", "db-"} {
		if !strings.Contains(string(text), "# lxd/"+name+" is not here: ") {
			t.Errorf("nothing is said of %s:\n%s", name, text)
		}
		if _, err := a.Inspect(t.Context(), spec.LXD, name); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "rename") {
			t.Errorf("%s can be taken over: %v", name, err)
		}
	}
	if _, err := a.Inspect(t.Context(), spec.LXD, "web"); err != nil {
		t.Error(err)
	}
}
