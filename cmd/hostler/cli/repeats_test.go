package cli

import (
	"fmt"
	"testing"

	"hostler/agent/client"
)

// Nine retries with the same cause become a line with a count.
func TestRepeatedEventsAreOne(t *testing.T) {
	var events []client.Event
	for i := range 9 {
		events = append(events, client.Event{Seq: int64(i), Object: "machine/web", Level: "warning", Reason: "Failed", Message: fmt.Sprintf("create: no mirror; retry %d of 10 in 10s", i+1)},
			client.Event{Object: "machine/db", Level: "info", Reason: "Started", Message: fmt.Sprint(i)})
	}
	got := collapse(events)
	if len(got) != 10 || got[0].times != 9 || got[0].Seq != 8 || got[0].text() != "create: no mirror; retry 9 of 10 in 10s (9 times)" {
		t.Errorf("got %d: %+v", len(got), got[0])
	}
}
