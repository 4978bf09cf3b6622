package behaviour

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler/tests/harness"
)

// apart: the provisioner in a process of its own, over the agent's socket, does
// all that it does inside the agent; killing it touches no guest, and the next
// one goes on.
func apart(t *testing.T, w World) {
	a := w.Agent()
	a.Flags = []string{"--provisioners", "elsewhere"}
	w.Configure("harvest: all\n")
	a.Start()
	worker := func() *harness.Agent {
		other := *a
		other.Flags = []string{"worker", "provisioner-" + w.Type()}
		other.Launch("")
		return &other
	}
	live := w.Live()
	site := declaration(machine(w, "web", w.Image(), ""), machine(w, "db", w.Another(), ", running: false"))
	a.Run("apply", "-f", a.File("site", site))
	// systemd starts it again if it ends because the host is not set up yet.
	first := worker()
	harness.Wait(t, "the first machine", patience, func() error {
		if first.Exited() {
			first = worker()
		}
		if row := a.Machines()["db"]; row.Status != "stopped" {
			return fmt.Errorf("%+v", row)
		}
		return nil
	})
	a.Apply("site", site)
	web := w.Look("web")
	first.Kill()
	second := worker()
	from, to := declaration(machine(w, "cache", w.Another(), live.From)), declaration(machine(w, "cache", w.Another(), live.To))
	a.Apply("more", from)
	a.Apply("more", to)
	same(t, w, "web", web)
	made(t, live, "cache")
	// F35: removed files of the runtime directory come back, and no guest changes.
	if err := os.RemoveAll(filepath.Join(a.Dir, "run")); err != nil {
		t.Fatal(err)
	}
	a.Ready()
	a.Apply("more", declaration(machine(w, "cache", w.Another(), live.To), machine(w, "later", w.Image(), ", running: false")))
	same(t, w, "web", web)
	// The agent goes away and comes back: the worker waits for it.
	a.Kill()
	a.Start()
	a.Run("delete", "declaration/more", "--wait", "--timeout", "2m")
	// P3: it loses its store, and the worker takes none of its guests for
	// unknown.
	a.Kill()
	was := w.Names()
	if err := os.WriteFile(filepath.Join(a.Dir, "state", "state.db"), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Forget()
	a.Start()
	status(t, a, "web", "running")
	status(t, a, "db", "stopped")
	same(t, w, "web", web)
	if names := w.Names(); !slices.Equal(names, was) {
		t.Errorf("there are %v, were %v", names, was)
	}
	a.Run("delete", "declaration/site", "--wait", "--timeout", "2m")
	nothing(t, w)
	began := time.Now()
	second.Stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the worker took %s to end", took)
	}
}

// secret: the agent's files are readable by root alone, and user-data appears
// only where the guest reads it.
func secret(t *testing.T, w World) {
	const word = "correct-horse-battery-staple"
	a := begin(w)
	site := declaration(machine(w, "web", w.Image(), fmt.Sprintf(`, cloud-init: {user-data: "#cloud-config\npassword: %s\n"}`, word)))
	a.Apply("site", site)
	refused(t, a, []string{"apply", "-f", a.File("site", strings.Replace(site, word, word+"-2", 1))}, "--allow recreate")
	if i := w.Look("web"); !strings.Contains(i.Told, word) {
		t.Fatal("the guest was not told its user-data")
	}
	// A declaration that is wrong shows the line that is wrong, and that of
	// user-data never.
	if _, out := a.Exit("apply", "--allow", "destroy", "-f", a.File("wrong", strings.Replace(site, "password", "password: x\\n  y", 1))); strings.Contains(out, word) {
		t.Errorf("an error shows the secret:\n%s", out)
	}
	for _, args := range [][]string{{"events"}, {"status"}, {"get", "machines", "-o", "json"}, {"doctor"}, {"plan", "-f", a.File("site", site)}} {
		if _, out := a.Exit(args...); strings.Contains(out, word) {
			t.Errorf("%v shows the secret", args)
		}
	}
	if strings.Contains(a.Log(), word) {
		t.Error("the log shows the secret")
	}
	for _, pid := range []int{a.PID(), w.PID(), w.Look("web").Process} {
		if argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || strings.Contains(string(argv), word) {
			t.Errorf("argv of %d: %v", pid, err)
		}
	}
	modes := map[string]fs.FileMode{"state": 0o700, "run": 0o750, filepath.Join("run", "hostler.sock"): 0o660}
	for name, want := range modes {
		info, err := os.Lstat(filepath.Join(a.Dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", name, info.Mode().Perm(), want, err)
		}
	}
	err := filepath.WalkDir(filepath.Join(a.Dir, "state"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 0 {
			t.Errorf("%s belongs to user %d", path, stat.Uid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
