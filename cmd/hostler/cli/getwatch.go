package cli

import (
	"context"
	"encoding/json"
)

// getWatch prints the rows, then each changed row, until interrupted.
func (a *app) getWatch(ctx context.Context, kind string, names []string) error {
	if a.output == outYAML || a.output == outCSV {
		return usage("get -w cannot print as %s", a.output).hint("it can print as table, wide, json (one object per line) or name")
	}
	kinds := []string{kind}
	if kind == kindAll {
		kinds = getKinds
	}
	agent, seen := a.agent(), 0
	p := &changePrinter{app: a, names: names, several: kind == kindAll, kinds: map[string]*watchedKind{}}
	err := again(ctx, &seen, a.remark, func() error {
		return watchListings(ctx, agent, kinds, func(l *listing) error {
			seen++
			return p.print(l)
		})
	})
	if ctx.Err() != nil {
		return silent(exitInterrupted)
	}
	return err
}

// watchListings calls fn with the rows of each kind, and again with all rows of
// a kind when one of them changes.
func watchListings(ctx context.Context, agent agent, kinds []string, fn func(*listing) error) error {
	var asked []string
	for _, kind := range kinds {
		asked = append(asked, plural(kind))
	}
	return agent.WatchRows(ctx, asked, nil, func(word string, rows json.RawMessage) error {
		kind, err := parseKind(word)
		if err != nil {
			return err
		}
		l, err := listSent(kind, rows)
		if err != nil {
			return err
		}
		return fn(l)
	})
}
