package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/workerapi"
	"hostler/internal/fault"
)

// A worker's counts are bounded and apply to its own type only.
func TestWorkersTellTheirOwnCounts(t *testing.T) {
	var got []string
	b, _ := workerBench(t, func(o *Options) {
		o.Count = func(t spec.ContainerType, n workerapi.Counts) { got = append(got, fmt.Sprint(t, n)) }
	})
	s := b.worker(t, "lxd")
	counts := workerapi.Counts{Passes: []workerapi.Count{{Seconds: 0.5}}, Operations: []workerapi.Count{{Action: "create", Seconds: 2, Failed: true}}}
	if err := s.Count(t.Context(), counts); err != nil || !slices.Equal(got, []string{fmt.Sprint(spec.LXD, counts)}) {
		t.Errorf("counted %v, %v", got, err)
	}
	for name, counts := range map[string]workerapi.Counts{
		"too many":  {Operations: make([]workerapi.Count, workerapi.MaxCounts+1)},
		"before it": {Passes: []workerapi.Count{{Seconds: -1}}},
	} {
		if err := s.Count(t.Context(), counts); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.worker(t, "").Count(t.Context(), counts); !fault.Is(err, fault.Invalid) {
		t.Errorf("for all types: %v", err)
	}
	if w := b.as(peer(kvmUID, 900), "POST", "/v1/worker/lxd/counts", "application/json", `{}`); w.Code != http.StatusForbidden {
		t.Errorf("for another type: %d", w.Code)
	}
	if w := b.as(peer(lxdUID, 900), "POST", "/v1/worker/lxd/counts", "application/json", strings.Repeat(" ", maxBody+1)); w.Code < 400 || w.Code > 499 {
		t.Errorf("too long: %d", w.Code)
	}
	if len(got) != 1 {
		t.Errorf("counted %v", got)
	}
}
