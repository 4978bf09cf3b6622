package behaviour

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// documents: all documents are one whole. A machine that moves from an applied
// document to files of conf.d and between them goes on running as it is; it is
// removed by consent alone, and may be declared again at once.
func documents(t *testing.T, w World) {
	a := begin(w)
	web, db := machine(w, "web", w.Image(), ""), machine(w, "db", w.Image(), ", running: false")
	file := a.File("site", declaration(web, db))
	a.Run("apply", "-f", file, "--wait", "--timeout", "3m")
	was := w.Look("web")
	same := func(step string) {
		t.Helper()
		if now := w.Look("web"); now.Process != was.Process || now.Making != was.Making {
			t.Errorf("%s: web was %+v and is %+v", step, was, now)
		}
		if names := strings.Join(w.Names(), " "); !strings.Contains(names, "db") {
			t.Errorf("%s: there is %s", step, names)
		}
	}
	at := func(name string) string { return filepath.Join(a.Dir, "conf.d", name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// put puts files in the place of all files of conf.d; a file is written
	// elsewhere and moved.
	put := func(files map[string]string) {
		t.Helper()
		for name, text := range files {
			must(os.WriteFile(at("new"), []byte(text), 0o600))
			must(os.Rename(at("new"), at(name)))
		}
		old, err := filepath.Glob(at("*.yaml"))
		must(err)
		for _, path := range old {
			if _, stays := files[filepath.Base(path)]; !stays {
				must(os.Remove(path))
			}
		}
	}
	row := func(name, declaration, problem string) {
		t.Helper()
		harness.Wait(t, name+" to be of "+declaration+" "+problem, patience, func() error {
			out := a.Run("get", "declarations", "-o", "json")
			show := a.Run("show", "machine/"+name, "-o", "json")
			if !strings.Contains(show, `"declaration": "`+declaration+`"`) || !strings.Contains(out, problem) {
				return fmt.Errorf("%s%s", show, out)
			}
			return nil
		})
	}
	put(map[string]string{"site.yaml": declaration(web, db)})
	row("web", "site", at("site.yaml"))
	same("copied to conf.d")
	put(map[string]string{"one.yaml": declaration(web), "two.yaml": declaration(db)})
	row("db", "two", "")
	same("split")
	put(map[string]string{"one.yaml": declaration(db), "two.yaml": declaration(web)})
	row("web", "two", "")
	same("swapped")
	put(map[string]string{"one.yaml": declaration(db), "three.yaml": "version: 1\nmachine:\n" + web})
	harness.Wait(t, "word of the error", patience, func() error {
		if out := a.Run("status") + a.Run("events"); strings.Count(out, "three.yaml:2:1") < 2 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	same("renamed with an error")
	refused(t, a, []string{"allow", "destroy", "machine/web"}, "machine/web")
	put(map[string]string{"one.yaml": declaration(db), "three.yaml": declaration(web)})
	row("web", "three", "")
	same("mended")
	refused(t, a, []string{"apply", "-f", a.File("other", declaration(machine(w, "web", w.Another(), "")))}, "machine/web", at("three.yaml")+":3", "other")

	put(map[string]string{"one.yaml": declaration(db)})
	harness.Wait(t, "the hold", patience, func() error {
		if out := a.Run("status"); !strings.Contains(out, "hostler allow destroy") || !strings.Contains(out, "machine/web") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	same("held")
	w.Configure("harvest: all\nconcurrency: 2\n")
	harness.Wait(t, "the new configuration", patience, func() error {
		if out := a.Run("harvest"); !strings.Contains(out, "all") {
			return fmt.Errorf("harvest is %s", out)
		}
		return nil
	})
	a.Run("allow", "destroy", "machine/web")
	// A machine that is declared again during its removal is created again.
	a.Run("apply", "-f", a.File("site", declaration(web)), "--wait", "--timeout", "3m")
	if now := w.Look("web"); now.Making == was.Making {
		t.Errorf("web is still %+v", now)
	}
	was = w.Look("web")
	a.Run("apply", "-f", a.File("site", declaration(machine(w, "www", w.Image(), ", renamed-from: web"))), "--wait", "--timeout", "3m")
	same("renamed")
	empty(t, a, a.File("site", declaration(machine(w, "www", w.Image(), ", renamed-from: web"))))
	a.Run("apply", "-f", a.File("site", declaration(machine(w, "web", w.Image(), ", renamed-from: www"))), "--wait", "--timeout", "3m")
	same("renamed back")
	refused(t, a, []string{"apply", "-f", a.File("site", declaration(machine(w, "later", w.Image(), ", running: false")))}, "machine/web", "--allow destroy")
	a.Run("delete", "declaration/site", "--wait")
	gone(t, w, "web")
}
