package provisioner

import "testing"

// A create that the full queue refuses keeps its nudge, e.g. that an image
// appeared, for the next pass.
func TestARefusedCreateKeepsItsNudge(t *testing.T) {
	for _, nudge := range []string{"web", nudgeAll, nudgeWant, nudgeWant + "web"} {
		w := &Worker{queued: maxQueued}
		o := &operation{w: w, steps: []Step{{Machine: "web", Action: ActionCreate}}}
		queued, kept := w.queueUp(o, map[string]bool{nudge: true}), w.nudges.Take()
		if queued || !kept["web"] || !w.more {
			t.Errorf("%q: nudged %v, more %v", nudge, kept, w.more)
		}
	}
	w := &Worker{queued: maxQueued}
	o := &operation{w: w, steps: []Step{{Machine: "web", Action: ActionCreate}}}
	if w.queueUp(o, map[string]bool{nudgeWant + "db": true}) || w.nudges.Take()["web"] {
		t.Error("another machine's nudge was kept")
	}
}
