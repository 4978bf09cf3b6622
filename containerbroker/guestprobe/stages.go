package guestprobe

import (
	"encoding/json"
	"strings"
	"time"
)

// cloudInitTook returns the time from the beginning of cloud-init's first stage
// to the end of its last stage, from its status.json. It returns 0 if a stage is
// not finished, or if the guest's clock was set back.
func cloudInitTook(report string) time.Duration {
	_, document, found := strings.Cut("\n"+report, "\nstages\n")
	if !found {
		return 0
	}
	var status struct {
		V1 map[string]json.RawMessage `json:"v1"`
	}
	if json.NewDecoder(strings.NewReader(document)).Decode(&status) != nil {
		return 0
	}
	var first, last float64
	for _, raw := range status.V1 {
		var stage struct{ Start, Finished float64 }
		if json.Unmarshal(raw, &stage) != nil || stage.Start == 0 {
			continue // e.g. the name of the data source, or a stage that did not run
		}
		if stage.Finished == 0 {
			return 0
		}
		if first == 0 || stage.Start < first {
			first = stage.Start
		}
		last = max(last, stage.Finished)
	}
	// A day bounds the numbers of a hostile guest.
	if took := last - first; took > 0 && took < (24*time.Hour).Seconds() {
		return time.Duration(took * float64(time.Second))
	}
	return 0
}
