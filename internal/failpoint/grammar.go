//go:build failpoint

package failpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verb is the effect of a crash point.
type Verb string

// The verbs of a plan.
const (
	Kill  Verb = "kill"
	Fail  Verb = "error"
	Delay Verb = "delay"
	Panic Verb = "panic"
)

// action is a point that a plan arms, with its effect.
type action struct {
	Point Point
	Verb  Verb
	// Delay is set for the verb Delay.
	Delay time.Duration
	// Nth selects a hit, counted from 1; 0 selects every hit.
	Nth int
}

func (a action) String() string {
	s := string(a.Point) + "=" + string(a.Verb)
	if a.Verb == Delay {
		s += ":" + a.Delay.String()
	}
	if a.Nth > 0 {
		s += "#" + strconv.Itoa(a.Nth)
	}
	return s
}

// parse reads a plan, which consists of actions separated by semicolons. Each
// action has the form POINT=VERB[:DURATION][#N], for example
// "lxd-before-post=kill#2;init-lock-held-before-apt=delay:30s".
func parse(text string) ([]action, error) {
	var actions []action
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

func parseAction(text string) (action, error) {
	name, rest, found := strings.Cut(text, "=")
	if !found {
		return action{}, fmt.Errorf("want POINT=VERB")
	}
	a := action{Point: Point(name)}
	if !slices.Contains(Points, a.Point) {
		return action{}, fmt.Errorf("no crash point %q", name)
	}
	if verb, nth, counted := strings.Cut(rest, "#"); counted {
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 {
			return action{}, fmt.Errorf("%q is not a count of hits", nth)
		}
		rest, a.Nth = verb, n
	}
	verb, value, hasValue := strings.Cut(rest, ":")
	a.Verb = Verb(verb)
	switch a.Verb {
	case Delay:
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return action{}, fmt.Errorf("%q is not a delay", value)
		}
		a.Delay = d
	case Kill, Fail, Panic:
		if hasValue {
			return action{}, fmt.Errorf("%s takes no value", verb)
		}
	default:
		return action{}, fmt.Errorf("no verb %q", verb)
	}
	return a, nil
}
