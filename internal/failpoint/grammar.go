//go:build failpoint

package failpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verb is the effect of a point.
type Verb string

// The verbs of a plan.
const (
	Kill  Verb = "kill"
	Fail  Verb = "error"
	Delay Verb = "delay"
	Panic Verb = "panic"
)

// Action is an armed point.
type Action struct {
	Point Point
	Verb  Verb
	// Delay is set for the verb Delay.
	Delay time.Duration
	// Nth counts hits from 1; 0 means every hit.
	Nth int
}

func (a Action) String() string {
	s := string(a.Point) + "=" + string(a.Verb)
	if a.Verb == Delay {
		s += ":" + a.Delay.String()
	}
	if a.Nth > 0 {
		s += "#" + strconv.Itoa(a.Nth)
	}
	return s
}

// Parse reads a plan: actions separated by semicolons, each
// POINT=VERB[:DURATION][#N], for example
// "lxd-before-post=kill#2;init-lock-held-before-apt=delay:30s".
func Parse(text string) ([]Action, error) {
	var actions []Action
	for part := range strings.SplitSeq(text, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		a, err := parseAction(part)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		actions = append(actions, a)
	}
	return actions, nil
}

func parseAction(text string) (Action, error) {
	name, rest, found := strings.Cut(text, "=")
	if !found {
		return Action{}, fmt.Errorf("want POINT=VERB")
	}
	a := Action{Point: Point(name)}
	if !slices.Contains(Points, a.Point) {
		return Action{}, fmt.Errorf("no crash point %q", name)
	}
	if verb, nth, counted := strings.Cut(rest, "#"); counted {
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 {
			return Action{}, fmt.Errorf("%q is no count of hits", nth)
		}
		rest, a.Nth = verb, n
	}
	verb, value, hasValue := strings.Cut(rest, ":")
	a.Verb = Verb(verb)
	switch a.Verb {
	case Delay:
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return Action{}, fmt.Errorf("%q is no delay", value)
		}
		a.Delay = d
	case Kill, Fail, Panic:
		if hasValue {
			return Action{}, fmt.Errorf("%s takes no value", verb)
		}
	default:
		return Action{}, fmt.Errorf("no verb %q", verb)
	}
	return a, nil
}
