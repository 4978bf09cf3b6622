package guests

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

// Console text that a hypervisor returns only once is kept: each read shows the
// whole log, also after a restart of the agent. A recreated instance starts a
// new log.
func TestConsoleIsKept(t *testing.T) {
	store, _, err := state.Open(t.Context(), state.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	g := &Access{Store: store, Dir: filepath.Join(t.TempDir(), "consoles")}
	made := func(token string) {
		t.Helper()
		_, err := store.Write(t.Context(), state.Atomic, state.Write{
			ID: state.ID{Kind: spec.KindMachine, Name: "web"}, Life: state.Alive, Revision: map[bool]int64{true: state.AnyRevision}[token != "one"],
			Spec:   spec.Encode(spec.MachineRecord{Machine: spec.Machine{Type: spec.LXD}}),
			Status: spec.Encode(spec.MachineStatus{State: spec.MachineRunning, Instance: &spec.InstanceInfo{Name: "web", Token: token}}),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	look := func(given, want string) {
		t.Helper()
		log, err := g.keepConsole(t.Context(), spec.LXD, "web", io.NopCloser(strings.NewReader(given)))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(log); string(got) != want {
			t.Errorf("after %q it shows %q, want %q", given, got, want)
		}
	}
	made("one")
	look("", "")
	look("booting\n", "booting\n")
	look("", "booting\n")
	look("login: \n", "booting\nlogin: \n")
	look("", "booting\nlogin: \n")
	made("two")
	look("again\n", "again\n")
	if files, _ := os.ReadDir(g.Dir); len(files) != 1 {
		t.Errorf("kept: %v", files)
	}
}

func TestJoinConsole(t *testing.T) {
	long := strings.Repeat("a line of its own\n", 20)
	for what, c := range map[string]struct{ kept, read, want string }{
		"more":                 {"one\n", "two\n", "one\ntwo\n"},
		"equal lines":          {"one\n\n", "\ntwo\n", "one\n\n\ntwo\n"},
		"the whole again":      {"one\n", "one\ntwo\n", "one\ntwo\n"},
		"the end again":        {"one\n" + long, long, "one\n" + long},
		"the end, and more":    {"one\n" + long, long + "two\n", "one\n" + long + "two\n"},
		"nothing":              {"one\n", "", "one\n"},
		"nothing was kept yet": {"", "one\n", "one\n"},
	} {
		if got := string(joinConsole([]byte(c.kept), []byte(c.read))); got != c.want {
			t.Errorf("%s: %q", what, got)
		}
	}
	got := joinConsole(bytes.Repeat([]byte("0123456\n"), maxConsole/8), []byte("last\n"))
	if len(got) > maxConsole || !bytes.HasPrefix(got, []byte("0123456\n")) || !bytes.HasSuffix(got, []byte("last\n")) {
		t.Errorf("%d bytes, %.20q…", len(got), got)
	}
}
