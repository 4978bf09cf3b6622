package lxd

import (
	"net/http"
	"strings"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker/images"
	"hostler/internal/fault"
	"hostler/internal/run/runtest"
)

// LXD's aliases count where the image sources permit: a plain name does not
// match the alias of a virtual machine's image, and lxd:ALIAS asks no source.
func TestAliasesAreOneOfTheSources(t *testing.T) {
	f := newFakeLXD(t)
	f.mux.HandleFunc("/1.0/images/aliases/{name}", func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("name") {
		case "mine/1":
			reply(w, "sync", api.ImageAliasesEntry{Name: "mine/1", Target: "abc", Type: "container"})
		case "vm/1":
			reply(w, "sync", api.ImageAliasesEntry{Name: "vm/1", Target: "def", Type: "virtual-machine"})
		default:
			refuse(w, http.StatusNotFound, "Image alias not found")
		}
	})
	for _, c := range []struct {
		sources []string
		ref, id string
		kind    fault.Kind
	}{
		{[]string{"build"}, "incus:mine/1", "abc", ""},
		{[]string{"build"}, "incus:vm/1", "", fault.Invalid},
		{[]string{"local", "build"}, "mine/1", "abc", ""},
		{[]string{"build"}, "mine/1", "", fault.NotFound},
		{[]string{"build"}, "lxd:mine/1", "abc", ""},
		{[]string{"local", "build"}, "vm/1", "", fault.NotFound},
		{[]string{"local", "build"}, "lxd:vm/1", "", fault.Invalid},
		{[]string{"local", "build"}, "none/1", "", fault.NotFound},
	} {
		cache, err := images.Open(images.Options{Dir: t.TempDir(), Sources: c.sources, Runner: runtest.NewFake()})
		if err != nil {
			t.Fatal(err)
		}
		d := f.driver(func(o *Options) {
			if o.Images = cache; strings.HasPrefix(c.ref, "incus:") {
				o.Dialect = Incus
			}
		})
		if id, err := d.EnsureImage(t.Context(), c.ref, nil); id != c.id || fault.KindOf(err) != c.kind {
			t.Errorf("%s of %v: %q, %v", c.ref, c.sources, id, err)
		}
	}
}
