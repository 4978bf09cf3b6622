package provisioner

import (
	"testing"

	"hostler/containerbroker"
)

// The change of an image shows no user and no query of the addresses, which may hold
// secrets.
func TestChangedImageShowsNoSecrets(t *testing.T) {
	const before, shown = "https://me:hunter2@m.test/d#sha256=0a", "https://m.test/d#sha256=0a"
	for image, to := range map[string]string{
		"https://m.test/e?sig=hunter2#sha256=0b": "https://m.test/e#sha256=0b",
		"https://m.test/d?sig=hunter2#sha256=0a": "(changed)",
	} {
		d := machine("web", provisioned, func(d *Desired) { d.Record.Machine.Image, d.Status.Instance.Image = image, before })
		i := instance("web")
		changes := separating(&d, &i, noDiff)
		if len(changes) != 1 || changes[0].From != shown || changes[0].To != to || changes[0].Impact != containerbroker.ImpactRecreate {
			t.Errorf("to %s: %+v", image, changes)
		}
	}
}
