//go:build failpoint

package failpoint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler/internal/run"
)

func TestParse(t *testing.T) {
	got, err := parse(" lxd-before-post=kill#2; init-lock-held-before-apt=delay:30s;lxd-stopping=error ;lxd-delete-sent=panic;")
	if err != nil {
		t.Fatal(err)
	}
	want := []action{
		{Point: LXDBeforePost, Verb: Kill, Nth: 2},
		{Point: InitLockHeld, Verb: Delay, Delay: 30 * time.Second},
		{Point: LXDStopping, Verb: Fail},
		{Point: LXDDeleteSent, Verb: Panic},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	for text, message := range map[string]string{
		"lxd-stopping":           `"lxd-stopping": want POINT=VERB`,
		"nowhere=kill":           `"nowhere=kill": no crash point "nowhere"`,
		"lxd-stopping=burn":      `"lxd-stopping=burn": no verb "burn"`,
		"lxd-stopping=kill#0":    `"lxd-stopping=kill#0": "0" is not a count of hits`,
		"lxd-stopping=delay":     `"lxd-stopping=delay": "" is not a delay`,
		"lxd-stopping=delay:-1s": `"lxd-stopping=delay:-1s": "-1s" is not a delay`,
		"lxd-stopping=error:x":   `"lxd-stopping=error:x": error takes no value`,
	} {
		if _, err := parse(text); err == nil || err.Error() != message {
			t.Errorf("%s: got %v, want %s", text, err, message)
		}
	}
}

func TestHitCountsAndRecords(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	actions, err := parse("lxd-stopping=error#2;lxd-delete-sent=panic;lxd-before-start=delay:20ms")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlan(actions, log)
	for i, want := range []bool{false, true, false} {
		if err := p.hit(LXDStopping); (err != nil) != want {
			t.Errorf("hit %d: %v", i+1, err)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = p.hit(LXDDeleteSent)
	}()
	start := time.Now()
	if err := p.hit(LXDBeforeStart); err != nil || time.Since(start) < 20*time.Millisecond {
		t.Errorf("delay of %v, %v", time.Since(start), err)
	}
	data, err := os.ReadFile(log)
	if err != nil || string(data) != "lxd-stopping\nlxd-stopping\nlxd-stopping\nlxd-delete-sent\nlxd-before-start\n" {
		t.Errorf("log %q, %v", data, err)
	}
}

// A child of the test binary hits a point with the plan in its environment.
func TestEnvironment(t *testing.T) {
	if os.Getenv("FAILPOINT_CHILD") != "" {
		for range 3 {
			if err := Hit(LXDStopping); err != nil {
				os.Exit(7)
			}
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for plan, want := range map[string]string{
		"":                     "",
		"lxd-stopping=error#3": "exit status 7",
		"lxd-stopping=kill#2":  "ended by signal killed",
		"nowhere=kill":         `exit status 2: cannot read HOSTLER_FAILPOINTS: "nowhere=kill": no crash point "nowhere"`,
	} {
		_, err := run.Host{}.Run(t.Context(), run.Command{
			Path: self,
			Args: []string{"-test.run=^TestEnvironment$"},
			Env:  []string{"FAILPOINT_CHILD=1", PlanEnv + "=" + plan},
		})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", plan, err, want)
		}
	}
}

func TestPointsAreListedOnce(t *testing.T) {
	seen := map[Point]bool{}
	for _, p := range Points {
		if seen[p] || p == "" || strings.ContainsAny(string(p), "=;#: ") {
			t.Errorf("point %q", p)
		}
		seen[p] = true
	}
	text, err := os.ReadFile("points.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range regexp.MustCompile(`Point = "(.*)"`).FindAllStringSubmatch(string(text), -1) {
		if !seen[Point(named[1])] {
			t.Errorf("%s is not in Points", named[1])
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("lxd-before-post=kill#2;init-lock-held-before-apt=delay:30s")
	f.Add("lxd-stopping=error;;lxd-delete-sent=panic#1")
	f.Add("=;=#:")
	f.Fuzz(func(t *testing.T, text string) {
		actions, err := parse(text)
		if err != nil {
			return
		}
		var parts []string
		for _, a := range actions {
			parts = append(parts, a.String())
		}
		again, err := parse(strings.Join(parts, ";"))
		if err != nil || !slices.Equal(actions, again) {
			t.Fatalf("%q reads as %v, written and read again %v, %v", text, actions, again, err)
		}
	})
}
