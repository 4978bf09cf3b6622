//go:build integration && failpoint

package lxc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/containerbroker/lxc"
	"hostler/internal/failpoint"
	"hostler/internal/run"
)

// childEnv holds the driver's options of a process that leads an instance
// through its life, for a test that kills this process.
const childEnv = "HOSTLER_TEST_LXC"

// child is what such a process needs.
type child struct {
	Path, Bridge, Cache string
	IDs                 lxc.IDs
}

func TestMain(m *testing.M) {
	if how := os.Getenv(stepEnv); how != "" {
		serve := map[string]func(context.Context, io.Reader, io.Writer) error{"serve": lxc.ServeStep, "lose": lxc.ServeLosingStep}[how]
		if err := serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if text := os.Getenv(childEnv); text != "" {
		var c child
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = c.live()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func (c child) live() error {
	cache, err := images.Open(images.Options{Dir: c.Cache, Runner: run.Host{}})
	if err != nil {
		return err
	}
	d := lxc.New(lxc.Options{Path: c.Path, Namespace: "hostler", IDs: c.IDs, Bridge: c.Bridge, Images: cache})
	return live(context.Background(), d)
}

// live makes, starts, changes, stops and deletes an instance.
func live(ctx context.Context, d *lxc.Driver) error {
	id, err := d.EnsureImage(ctx, image, nil)
	if err != nil {
		return err
	}
	m := containerbroker.Machine{
		Name: "crash", ImageID: id, Properties: containerbroker.Properties{CPUs: 1, Memory: 64 << 20},
		Stamp: containerbroker.Stamp{Namespace: "hostler", UID: "crash", Token: "crash-token", Record: "{}"},
	}
	if err := d.Create(ctx, m, nil); err != nil {
		return err
	}
	if err := d.SetPower(ctx, m.Name, containerbroker.PowerStart, 0); err != nil {
		return err
	}
	m.CPUs = 2
	if err := d.Update(ctx, m, []containerbroker.Change{{Field: containerbroker.FieldCPUs}}); err != nil {
		return err
	}
	if err := d.SetPower(ctx, m.Name, containerbroker.PowerStop, 5*time.Second); err != nil {
		return err
	}
	return d.Delete(ctx, m.Name, m.Stamp)
}

// The process dies, fails or panics at each point, or stands there while another
// process lists and tidies up. The listing shows no instance or a whole one, the
// same calls repeated come to the end, and nothing is left.
func TestInterruptedAtEachPoint(t *testing.T) {
	r := newRig(t, true)
	cache := filepath.Join(r.folder.Dir, "images")
	options, err := json.Marshal(child{Path: r.path, Bridge: r.bridge, Cache: cache, IDs: r.ids})
	must(t, err)
	d := r.broker("hostler")
	self, err := os.Executable()
	must(t, err)
	for _, point := range failpoint.LXC {
		for _, verb := range []failpoint.Verb{failpoint.Kill, failpoint.Fail, failpoint.Panic, failpoint.Delay} {
			t.Run(string(point)+" "+string(verb), func(t *testing.T) {
				if id, err := d.EnsureImage(t.Context(), image, nil); err != nil {
					t.Fatal(err)
				} else if point == failpoint.LXCUnpacking {
					must(t, d.DeleteImage(t.Context(), id))
				}
				hits, plan := filepath.Join(t.TempDir(), "hits"), string(point)+"="+string(verb)
				if verb == failpoint.Delay {
					plan += ":1s"
				}
				ended := make(chan error, 1)
				go func() {
					_, err := run.Host{}.Run(t.Context(), run.Command{
						Path: self, Timeout: 2 * time.Minute,
						Env: []string{childEnv + "=" + string(options), failpoint.PlanEnv + "=" + plan, failpoint.LogEnv + "=" + hits},
					})
					ended <- err
				}()
				hit := func() bool {
					text, _ := os.ReadFile(hits)
					return slices.Contains(strings.Fields(string(text)), string(point))
				}
				if verb == failpoint.Delay {
					within(t, "it does not come to the point", hit)
					listed(t, d, containerbroker.StatusRunning, containerbroker.StatusStopped, containerbroker.StatusBusy)
					if places, _, err := d.MoveLeftovers(t.Context()); len(places) > 0 || err != nil {
						t.Errorf("beside it: leftovers: %q, %v", places, err)
					}
				}
				if err := <-ended; (err == nil) != (verb == failpoint.Delay) || !hit() {
					t.Fatalf("it ended: %v", err)
				}
				listed(t, d, containerbroker.StatusRunning, containerbroker.StatusStopped)
				if verb == failpoint.Kill { // the agent tidies up when it starts
					if places, more, err := d.MoveLeftovers(t.Context()); len(places) > 0 || more || err != nil {
						t.Errorf("leftovers: %q, %v, %v", places, more, err)
					}
				}
				must(t, live(t.Context(), d))
				_, _, err = d.MoveLeftovers(t.Context())
				must(t, err)
				left := r.left()
				unfinished, _ := filepath.Glob(r.path + "/.hostler/removed/*/config")
				half, _ := filepath.Glob(r.path + "/.hostler/pool/*/.*.tmp*")
				if left = slices.Concat(left, unfinished, half); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
			})
		}
	}
}

// listed fails if the listing shows anything but whole instances with a stamp
// and one of these states.
func listed(t *testing.T, d *lxc.Driver, allowed ...containerbroker.Status) {
	t.Helper()
	all, err := d.List(t.Context(), true)
	must(t, err)
	for _, i := range all {
		if i.Stamp == nil || !slices.Contains(allowed, i.Status) {
			t.Errorf("listed: %+v", i)
		}
	}
}
