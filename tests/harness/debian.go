package harness

import (
	"path/filepath"

	"hostler/containerbroker/images/imagestest"
)

// KeepImages gives an agent that is not started yet the images that hostler
// built in an earlier test of this clone. The returned function keeps the
// agent's images for later tests.
func (a *Agent) KeepImages() (keep func()) {
	a.t.Helper()
	return imagestest.Use(a.t, filepath.Join(a.Dir, "state", "images"))
}
