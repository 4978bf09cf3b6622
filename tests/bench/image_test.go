//go:build integration

package bench

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker/images"
	"hostler/internal/paths"
	"hostler/internal/run"
	"hostler/tests/harness"
)

// BenchmarkImage builds an image of Debian with hostler and a tar of the same
// packages with mmdebstrap alone, both with downloads. Hostler's time ends when the
// image is packed, scanned and kept.
func BenchmarkImage(b *testing.B) {
	runner := &recorder{}
	cache, err := images.Open(images.Options{Dir: b.TempDir(), Runner: runner})
	if err != nil {
		b.Fatal(err)
	}
	var shares string
	build := took(func() { shares = image(b, cache, "debian/12") })
	alone := took(func() { runner.alone(b, filepath.Join(b.TempDir(), "root.tar")) })
	ratio("build of a debian/12 image / mmdebstrap of the same packages into a tar", []time.Duration{build}, []time.Duration{alone}, 1.1)
	fmt.Printf("        hostler's build: %s\n", shares)
}

// image builds an image and returns the duration of each phase.
func image(b testing.TB, cache *images.Cache, name string) (phases string) {
	b.Helper()
	var texts []string
	phase, since := "preparing", time.Now()
	next := func(message string) {
		if message != phase {
			texts = append(texts, fmt.Sprintf("%s %.1f s", phase, time.Since(since).Seconds()))
			phase, since = message, time.Now()
		}
	}
	if _, err := cache.Build(b.Context(), name, images.FormatLXD, func(message string, _ int) { next(message) }); err != nil {
		b.Fatal(err)
	}
	next("")
	return strings.Join(texts, ", ")
}

// recorder notes the last run of mmdebstrap.
type recorder struct {
	run.Host
	include, sources string
}

// Run implements run.Runner.
func (r *recorder) Run(ctx context.Context, c run.Command) (run.Result, error) {
	if slices.Contains(c.Args, paths.Mmdebstrap) {
		sources, err := io.ReadAll(c.Stdin)
		if err != nil {
			return run.Result{}, err
		}
		r.sources, c.Stdin = string(sources), strings.NewReader(string(sources))
		for _, a := range c.Args {
			if strings.HasPrefix(a, "--include=") {
				r.include = a
			}
		}
	}
	return r.Host.Run(ctx, c)
}

// alone runs mmdebstrap with the packages and sources of the last build, without
// hooks, into a tar.
func (r *recorder) alone(b *testing.B, tar string) {
	b.Helper()
	codename := strings.Fields(r.sources)[2]
	args := []string{
		"--mode=root", "--variant=minbase", r.include, "--aptopt=Acquire::Languages \"none\"", codename, tar,
	}
	for line := range strings.Lines(r.sources) {
		args = append(args, strings.TrimSpace(line))
	}
	harness.Run(b, paths.Mmdebstrap, args...)
}
