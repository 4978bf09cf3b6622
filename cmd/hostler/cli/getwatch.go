package cli

import (
	"context"
	"io"
	"reflect"
	"slices"

	"hostler/agent/api"
	"hostler/agent/spec"
)

// lifeGone is the life of the last row that a watch prints of a machine.
const lifeGone = "dead"

// getWatch prints the rows, then each machine that changed, until interrupted.
func (a *app) getWatch(ctx context.Context, kind string, names []string) error {
	if kind != spec.KindMachine {
		return usage("get -w follows machines only, not %s", plural(kind)).hint("`hostler events -w` follows everything")
	}
	if a.output == outYAML || a.output == outCSV {
		return usage("get -w cannot print as %s", a.output).hint("it can print as table, wide, json (one object per line) or name")
	}
	p := &changePrinter{app: a, seen: map[string]api.Machine{}}
	agent, seen := a.agent(), 0
	err := again(ctx, &seen, a.tell, func() error {
		return agent.WatchMachines(ctx, nil, func(rows []api.Machine) error {
			seen++
			if len(names) > 0 {
				l := machineListing(rows)
				keep, missing := l.find(names)
				if len(missing) > 0 && !p.started {
					return l.absent(missing)
				}
				rows = pick(rows, keep)
			}
			return p.print(rows)
		})
	})
	if ctx.Err() != nil {
		return silent(exitInterrupted)
	}
	return err
}

// changePrinter prints what changed between two full sets of rows.
type changePrinter struct {
	app     *app
	seen    map[string]api.Machine
	widths  []int
	started bool
}

func (p *changePrinter) print(rows []api.Machine) error {
	var changed []api.Machine
	there := map[string]bool{}
	for _, m := range rows {
		there[m.Name] = true
		if old, ok := p.seen[m.Name]; !ok || !reflect.DeepEqual(old, m) {
			changed = append(changed, m)
		}
		p.seen[m.Name] = m
	}
	var gone []string
	for name := range p.seen {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		m := p.seen[name]
		m.Life, m.Message, m.Addresses, m.Percent = lifeGone, "gone", []string{}, nil
		changed = append(changed, m)
		delete(p.seen, name)
	}
	head := !p.started
	p.started = true
	return p.show(changed, head)
}

func (p *changePrinter) show(rows []api.Machine, head bool) error {
	switch p.app.output {
	case outJSON:
		for _, m := range rows {
			if err := writeJSONLine(p.app.env.Stdout, m); err != nil {
				return err
			}
		}
		return nil
	case outName:
		for _, m := range rows {
			if _, err := io.WriteString(p.app.env.Stdout, "machine/"+line(m.Name)+"\n"); err != nil {
				return err
			}
		}
		return nil
	}
	t := machineTable(rows, p.app.env.Now(), p.app.output == outWide)
	t.widths, t.bare = p.widths, !head
	err := t.write(p.app.env.Stdout, 0, p.app.colours().cell)
	p.widths = t.widths
	return err
}
