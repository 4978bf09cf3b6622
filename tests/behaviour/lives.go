package behaviour

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/tests/harness"
)

// adopted: a running instance that no file declares is adopted and released
// without a restart.
func adopted(t *testing.T, w World) {
	a := begin(w)
	// The host is set up for the type with the first machine of it.
	a.Apply("first", declaration(machine(w, "web", w.Image(), ", running: false")))
	w.Make("legacy", "", true)
	was := w.Look("legacy")
	site := a.File("site", declaration(plain(w, "legacy")...))
	refused(t, a, []string{"apply", "--allow", "destroy", "-f", site, "--wait", "--timeout", "20s"}, "adopt")
	if now := w.Look("legacy"); now != was {
		t.Fatalf("a foreign instance is %+v, was %+v", now, was)
	}
	a.Run("delete", "declaration/site", "--wait")
	a.Run("adopt", w.Type()+"/legacy")
	status(t, a, "legacy", "running")
	same(t, w, "legacy", was)
	if now := w.Look("legacy"); now.UID == "" || now.Told != was.Told {
		t.Errorf("adopted it is %+v, was %+v", now, was)
	}
	// Applying the exported document changes nothing.
	text := a.Run("export", "legacy")
	if !strings.Contains(text, "legacy:") {
		t.Errorf("export:\n%s", text)
	}
	empty(t, a, a.File("again", text))
	a.Run("release", "legacy")
	harness.Wait(t, "the release", patience, func() error {
		if now := w.Look("legacy"); now.UID != "" {
			return fmt.Errorf("it bears the stamp %s", now.UID)
		}
		return nil
	})
	same(t, w, "legacy", was)
}

// retried: the status of a machine shows that its image is unavailable, and other
// machines continue. A restart of the agent keeps the error and tries nothing;
// `hostler retry` succeeds at once after the mend. P15.
func retried(t *testing.T, w World) {
	a := begin(w)
	file := a.File("site", declaration(machine(w, "web", w.Image(), ", running: false"), machine(w, "bad", w.Later(), "")))
	refused(t, a, []string{"apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "2m"}, "bad", "later")
	rows := a.Machines()
	if rows["web"].Status != "stopped" || rows["bad"].Status != "error" || rows["bad"].Attempts == 0 {
		t.Errorf("%+v", rows)
	}
	a.Stop()
	w.Forget()
	a.Start()
	looked(t, w)
	if row := a.Machines()["bad"]; row.Status != "error" || row.Attempts != rows["bad"].Attempts || w.Mutations() != 0 {
		t.Errorf("after a restart of the agent, which changed %d things: %+v, was %+v", w.Mutations(), row, rows["bad"])
	}
	w.Supply()
	a.Run("retry", "machine/bad")
	a.Run("wait", "machine/bad", "--for", "ready", "--timeout", "2m")
}

// killed: an agent that dies in the middle of making a machine makes exactly
// one of it, and leaves nothing when it goes.
func killed(t *testing.T, w World) {
	a := begin(w)
	file := a.File("site", declaration(machine(w, "web", w.Image(), ", running: false")))
	a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "2m") // the host is set up, the image is there
	a.Run("delete", "machine/web", "--wait")
	for n := range 6 {
		a.Run("apply", "--allow", "destroy", "-f", file)
		time.Sleep(time.Duration(n) * 40 * time.Millisecond) // a moment of its making, not a wait for anything
		a.Kill()
		a.Start()
		a.Run("apply", "--allow", "destroy", "-f", file, "--wait", "--timeout", "2m")
		if names := w.Names(); len(names) != 1 || names[0] != "web" {
			t.Fatalf("instances %v", names)
		}
		a.Run("delete", "machine/web", "--wait")
		nothing(t, w)
	}
}

// revived: guests outlive the agent, and the next agent reads everything and
// changes nothing. A guest that dies is started again, and no other guest. P2.
func revived(t *testing.T, w World) {
	a := begin(w)
	a.Apply("site", declaration(plain(w, "web", "db")...))
	web, db := w.Look("web"), w.Look("db")
	if web.Process == 0 || db.Process == 0 {
		t.Fatalf("web is %+v, db is %+v", web, db)
	}
	a.Kill()
	w.Forget()
	a.Start()
	looked(t, w)
	a.Run("wait", "machine/web", "--for", "ready", "--timeout", "2m")
	same(t, w, "web", web)
	if n := w.Mutations(); n != 0 {
		t.Errorf("%d changes after the agent's death", n)
	}
	if err := syscall.Kill(web.Process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Wait(t, "the guest to run again", patience, func() error {
		if now := w.Look("web"); now.Process == 0 || now.Process == web.Process {
			return fmt.Errorf("process %d, was %d", now.Process, web.Process)
		}
		return nil
	})
	same(t, w, "db", db)
	if now := w.Look("web"); now.Making != web.Making {
		t.Error("it was made anew")
	}
}

// looked waits until the agent has read a listing since Forget.
func looked(t *testing.T, w World) {
	t.Helper()
	harness.Wait(t, "a look at all", patience, func() error {
		if w.Listings() == 0 {
			return fmt.Errorf("there was none")
		}
		return nil
	})
}
