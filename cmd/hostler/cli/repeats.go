package cli

import (
	"fmt"
	"regexp"

	"hostler/agent/client"
)

// repeats is the last of several equal events and their number.
type repeats struct {
	client.Event
	times int
}

// text returns the message, with the number of repetitions.
func (r repeats) text() string {
	if r.times == 1 {
		return r.Message
	}
	return fmt.Sprintf("%s (%d times)", r.Message, r.times)
}

// attempt matches the part of a message that counts retries.
var attempt = regexp.MustCompile(`; retry [0-9]+ of [0-9]+ in [^ ]+$`)

// collapse joins consecutive equal events about an object; the count of retries
// may differ.
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
	return a.Level != "info" && a.Level == b.Level && a.Reason == b.Reason &&
		attempt.ReplaceAllString(a.Message, "") == attempt.ReplaceAllString(b.Message, "")
}
