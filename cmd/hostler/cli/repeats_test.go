package cli

import (
	"fmt"
	"testing"
	"time"

	"hostler/agent/client"
)

// Nine retries with the same cause become a line with a count.
func TestRepeatedEventsAreOne(t *testing.T) {
	var events []client.Event
	for i := range 9 {
		at := time.Date(2020, 1, 2, 3, 4, i, 0, time.UTC)
		next := at.Add(10*time.Second + time.Millisecond)
		events = append(events, client.Event{
			Seq: int64(i), Time: at, Object: "machine/web", Level: "warning", Reason: "Failed", Message: "create: no mirror",
			Attempt: i + 1, Limit: 10, NextRetry: &next,
		},
			client.Event{Object: "machine/db", Level: "info", Reason: "Started", Message: fmt.Sprint(i)})
	}
	got := collapse(events)
	if len(got) != 10 || got[0].times != 9 || got[0].Seq != 8 || got[0].text() != "create: no mirror; retry 9 of 10 in 10s (9 times)" {
		t.Errorf("got %d: %+v", len(got), got[0])
	}
}
