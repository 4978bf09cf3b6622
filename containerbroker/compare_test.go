package containerbroker_test

import (
	"testing"

	"hostler/containerbroker"
)

// Values that may hold secrets are shown as set or changed only.
func TestChangesOfSecretsAreNotShown(t *testing.T) {
	live := func(string) (containerbroker.Impact, string) { return containerbroker.ImpactLive, "" }
	for _, c := range []struct{ have, from string }{{"", ""}, {"#cloud-config\npassword: old\n", "(set)"}} {
		want := containerbroker.Settings{UserData: "#cloud-config\npassword: new\n"}
		changes := containerbroker.Compare(want, containerbroker.Settings{UserData: c.have}, live)
		if len(changes) != 1 || changes[0].Field != containerbroker.FieldUserData || changes[0].From != c.from || changes[0].To != "(changed)" {
			t.Errorf("from %q: %+v", c.have, changes)
		}
	}
}
