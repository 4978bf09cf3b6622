package kvm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"hostler/internal/run"
)

// converter stands in for qemu-img: it writes one half, waits, and then writes
// the other half.
type converter struct {
	calls   atomic.Int32
	half    chan struct{} // receives when the first half is written
	proceed chan struct{}
}

func (c *converter) Run(_ context.Context, cmd run.Command) (run.Result, error) {
	c.calls.Add(1)
	f, err := os.OpenFile(cmd.Args[len(cmd.Args)-1], os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return run.Result{}, err
	}
	_, first := f.WriteString("one half, ")
	c.half <- struct{}{}
	<-c.proceed
	_, second := f.WriteString("the other")
	return run.Result{}, errors.Join(first, second, f.Close())
}

// Z8: two references to the same content put a single complete file into the
// pool. The second neither disturbs the first nor makes the file again, and the
// partial file of a killed agent is not taken for the image.
func TestOneContentIsPlacedOnce(t *testing.T) {
	dir := t.TempDir()
	raw, to := filepath.Join(dir, "raw"), filepath.Join(dir, imageName("hostler", "abc"))
	left := filepath.Join(dir, "."+filepath.Base(to)+".hostler-tmp")
	for path, content := range map[string][]byte{raw: bytes.Repeat([]byte{0}, 512), left: []byte("of a killed agent")} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &converter{half: make(chan struct{}, 2), proceed: make(chan struct{})}
	d := New(Options{Runner: c})
	first := make(chan error, 1)
	go func() { first <- d.place(t.Context(), raw, to, "debian/12", nil) }()
	<-c.half

	impatient, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() { second <- d.place(impatient, raw, to, "file:/debian.raw", nil) }()
	cancel()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the second did not wait: %v", err)
		}
	case <-c.half:
		t.Error("the second writes what the first is writing")
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("there is an image before it is whole")
	}
	close(c.proceed)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := d.place(t.Context(), raw, to, "file:/debian.raw", nil); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(to); err != nil || string(data) != "one half, the other" {
		t.Errorf("the image holds %q, %v", data, err)
	}
	if n := c.calls.Load(); n != 1 {
		t.Errorf("it was made %d times", n)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("left in the pool: %v, %v", all, err)
	}
}

// The first image that an agent puts into the pool removes the partial files of
// killed agents of its namespace, whatever their images are.
func TestPartialImagesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	raw := filepath.Join(dir, "raw")
	digest := strings.Repeat("0a", 32)
	for _, name := range []string{"raw", "." + imageName("hostler", digest) + ".hostler-tmp", "." + imageName("hostler-two", digest) + ".hostler-tmp", ".other.hostler-tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("QFI\xfb"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := New(Options{Namespace: "hostler"})
	if err := d.place(t.Context(), raw, filepath.Join(dir, imageName("hostler", strings.Repeat("0b", 32))), "debian/12", nil); err != nil {
		t.Fatal(err)
	}
	var left []string
	all, err := filepath.Glob(filepath.Join(dir, ".*.hostler-tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		left = append(left, filepath.Base(path))
	}
	if want := []string{"." + imageName("hostler-two", digest) + ".hostler-tmp", ".other.hostler-tmp"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}
