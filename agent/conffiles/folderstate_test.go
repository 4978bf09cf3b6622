package conffiles

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler/agent/declare"
)

// The state of the folder follows each reading. It is unread from the change of
// a file until the file was read.
func TestStateOfTheFolder(t *testing.T) {
	c := newConfd(t)
	dir := c.o.Dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("web.yaml", "version: 1\nmachines: {web: {type: lxd, image: debian/12}}\n")
	if s := c.State(); s.Read {
		t.Fatal("read before the first reading")
	}
	read := c.News()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, c) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-read
	if s := c.State(); !s.Read || len(s.Refused) > 0 {
		t.Fatalf("after the first reading: %+v", s)
	}
	if alive, _ := c.lives(t); len(alive) != 1 {
		t.Fatalf("machines after the first reading: %v", alive)
	}

	read = c.News()
	write("db.yaml", "version: 1\nmachine: {}\n")
	if s := c.State(); s.Read {
		t.Fatal("a new file counts as read at once")
	}
	<-read
	eventually(t, "the error of the new file", func() bool {
		s := c.State()
		return s.Read && len(s.Refused) == 1 && !s.Refused[0].Retried && strings.Contains(s.Refused[0].Reason, "db.yaml:2:1:")
	})

	for text, passes := range map[string]bool{
		"machines: {db: {type: lxd, image: debian/12, networks: {eth0: {network: lan}}}}": true,  // another file may declare lan
		"machines: {web: {type: lxd, image: debian/13}}":                                  false, // two files declare web
	} {
		read = c.News()
		write("db.yaml", "version: 1\n"+text+"\n")
		<-read
		eventually(t, "the refusal of "+text, func() bool {
			s := c.State()
			return s.Read && len(s.Refused) == 1 && s.Refused[0].Retried == passes
		})
	}
}

// A conflict with the former version of a file passes when the file's new version comes
// into force, so it does not end a wait before.
func TestConflictWithAFormerVersion(t *testing.T) {
	const machine = ": {type: lxd, image: debian/12, networks: {eth0: {network: "
	files := map[string]string{"a.yaml": "networks: {lan: {bridge: br-lan}}\nmachines: {web" + machine + "lan}}}}"}
	c := newConfd(t)
	write := func() {
		t.Helper()
		for name, text := range files {
			writeFile(t, filepath.Join(c.o.Dir, name), "version: 1\n"+text+"\n")
		}
	}
	read := func() (refused []declare.RefusedFile) {
		t.Helper()
		_, _, refused, err := c.newReader().apply(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return refused
	}
	if err := os.MkdirAll(c.o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write()
	if refused := read(); len(refused) > 0 {
		t.Fatalf("%+v", refused)
	}
	// web moves from a to b, and a waits for wan.
	files["a.yaml"] = "networks: {lan: {bridge: br-lan}}\nmachines: {db" + machine + "wan}}}}"
	files["b.yaml"] = "machines: {web: {type: lxd, image: debian/12}}"
	write()
	refused := read()
	if len(refused) != 2 || !refused[0].Retried || !refused[1].Retried {
		t.Errorf("while a is not in force: %+v", refused)
	}
	files["c.yaml"] = "networks: {wan: {bridge: br-wan}}"
	write()
	if refused := read(); len(refused) > 0 {
		t.Errorf("when wan is declared: %+v", refused)
	}
}

// A file with a new time and the same content is read again, also behind a link.
// A change of a file's mode alone causes no reading.
func TestTouchedFilesAreReadAgain(t *testing.T) {
	c := newConfd(t)
	dir, target := c.o.Dir, filepath.Join(t.TempDir(), "db.yaml")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o755))
	file, link := filepath.Join(dir, "web.yaml"), filepath.Join(dir, "db.yaml")
	must(os.WriteFile(file, []byte(document("web")), 0o644))
	must(os.WriteFile(target, []byte(document("db")), 0o644))
	must(os.Symlink(target, link))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, c) }()
	defer func() {
		cancel()
		must(<-done)
	}()
	isRead := func() bool { return c.State().Read }
	eventually(t, "the first reading", isRead)

	for i, path := range []string{file, target} {
		then := time.Now().Add(time.Duration(i+1) * time.Hour)
		must(os.Chtimes(path, then, then))
		eventually(t, "the reading after a touch of "+path, isRead)
	}

	news := c.News()
	must(os.Chmod(file, 0o600))
	must(os.Chmod(target, 0o600))
	select {
	case <-news:
		t.Error("a change of the mode caused a reading")
	case <-time.After(3 * quietTime):
	}
	if !isRead() {
		t.Error("after a change of the mode the files count as unread")
	}
}
