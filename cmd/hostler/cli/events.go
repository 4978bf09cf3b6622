package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
)

func (a *app) eventsCommand() *cobra.Command {
	var watch bool
	var limit int
	cmd := prints(&cobra.Command{
		Use:     "events [KIND/NAME]",
		Short:   "Show events",
		Long:    "Show the last events, of all objects or of one, oldest first. With -w continue and print\nnew events as they come; -o json then prints one object per line.",
		Example: "  hostler events -w\n  hostler events machine/web -o json",
		Args:    takes(0, 1, "at most one KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			object := ""
			if len(args) == 1 {
				var err error
				if object, err = eventObject(args[0]); err != nil {
					return err
				}
			}
			switch {
			case limit < 1 || limit > maxEvents:
				return usage("--limit takes 1 to %d, got %d", maxEvents, limit)
			case watch && a.output == outYAML:
				return usage("events -w cannot print as yaml").hint("it can print as table or json (one object per line)")
			}
			return a.events(cmd.Context(), object, limit, watch)
		},
		ValidArgsFunction: a.completeReferences,
	}, outTable, outJSON, outYAML)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on and print new events")
	cmd.Flags().IntVarP(&limit, "limit", "n", 100, "show the last `N` events")
	return cmd
}

// maxEvents is the number of events that the agent keeps.
const maxEvents = 100_000

// eventObject checks the name of an object that events are about, and returns
// its full form. It accepts KIND/NAME, type/NAME for a container type and
// host/NAME for the host.
func eventObject(s string) (string, error) {
	for _, kind := range []string{"type/", "host/"} {
		if name, ok := strings.CutPrefix(s, kind); ok {
			return s, checkName(name)
		}
	}
	r, err := parseReference(s)
	return r.String(), err
}

func (a *app) events(ctx context.Context, object string, limit int, watch bool) error {
	agent := a.agent()
	last, err := lastEvents(ctx, agent, object, limit)
	if err != nil {
		return err
	}
	if !watch {
		return a.printEvents(last)
	}
	p := eventPrinter{w: a.env.Stdout, colours: a.colours(), asJSON: a.output == outJSON}
	after := int64(0)
	for _, e := range last {
		if err := p.print(e); err != nil {
			return err
		}
		after = e.Seq
	}
	seen := 1
	err = again(ctx, &seen, a.remark, func() error {
		return agent.WatchEvents(ctx, after, object, func(e client.Event) error {
			seen++
			after = e.Seq
			return p.print(e)
		})
	})
	if ctx.Err() != nil {
		return silent(exitInterrupted)
	}
	return err
}

// lastEvents returns the newest events, oldest first. The agent answers in
// pages that begin with the oldest event.
func lastEvents(ctx context.Context, agent agent, object string, limit int) ([]client.Event, error) {
	const page = 5000
	var all []client.Event
	after := int64(0)
	for {
		rows, err := agent.Events(ctx, after, object, page)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if len(all) > limit {
			all = all[len(all)-limit:]
		}
		if len(rows) < page {
			return all, nil
		}
		after = rows[len(rows)-1].Seq
	}
}

func (a *app) printEvents(events []client.Event) error {
	if a.output != outTable {
		return a.document(pick(events, every(len(events))))
	}
	if len(events) == 0 {
		if !a.quiet {
			fmt.Fprintln(a.env.Stderr, "no events")
		}
		return nil
	}
	t := &table{head: []string{"TIME", "LEVEL", "OBJECT", "REASON", "MESSAGE"}}
	for _, e := range collapse(events) {
		t.add(zoned(e.Time), e.Level, e.Object, e.Reason, e.text())
	}
	return a.rows(t)
}

func every(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// zoned formats a time in UTC with its zone, as show does.
func zoned(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// eventPrinter prints events as they come.
type eventPrinter struct {
	w       io.Writer
	colours colours
	asJSON  bool
}

func (p eventPrinter) print(e client.Event) error {
	if p.asJSON {
		return writeJSONLine(p.w, e)
	}
	level := pad(e.Level, 7)
	_, err := fmt.Fprintf(p.w, "%s  %s  %s  %s  %s\n", zoned(e.Time),
		p.colours.word(strings.TrimSpace(level))+strings.Repeat(" ", len(level)-len(strings.TrimSpace(level))),
		pad(line(e.Object), 20), pad(line(e.Reason), 16), line(eventText(e)))
	return err
}
