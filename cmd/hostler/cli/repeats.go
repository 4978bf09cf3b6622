package cli

import (
	"fmt"
	"time"

	"hostler/agent/client"
)

// repeats is the last of several equal events and their number.
type repeats struct {
	client.Event
	times int
}

// text returns the event's message, with its next retry and the number of
// repetitions.
func (r repeats) text() string {
	if r.times == 1 {
		return eventText(r.Event)
	}
	return fmt.Sprintf("%s (%d times)", eventText(r.Event), r.times)
}

// eventText returns an event's message, with the retry that follows.
func eventText(e client.Event) string {
	switch {
	case e.Attempt == 0:
		return e.Message
	case e.NextRetry == nil:
		return fmt.Sprintf("%s; retry %d of %d", e.Message, e.Attempt, e.Limit)
	}
	return fmt.Sprintf("%s; retry %d of %d in %s", e.Message, e.Attempt, e.Limit, short(e.NextRetry.Sub(e.Time).Round(time.Second)))
}

// collapse joins consecutive equal events about an object. The retries of equal
// events may differ.
func collapse(events []client.Event) []repeats {
	var all []repeats
	last := map[string]int{} // by object
	for _, e := range events {
		if i, ok := last[e.Object]; ok && same(all[i].Event, e) {
			all[i] = repeats{e, all[i].times + 1}
			continue
		}
		last[e.Object] = len(all)
		all = append(all, repeats{e, 1})
	}
	return all
}

func same(a, b client.Event) bool {
	return a.Level != "info" && a.Level == b.Level && a.Reason == b.Reason && a.Message == b.Message
}
