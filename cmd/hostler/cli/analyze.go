package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

func (a *app) analyzeCommand() *cobra.Command {
	show := a.analysis("show [MACHINE...]", "Show the times of each object's steps",
		"Show for each container type how long the preparation of the host took, and for each\nmachine the steps of its last creation and start, in the order of the steps.",
		"  hostler analyze show\n  hostler analyze show web -o json", a.printTimes)
	blame := a.analysis("blame [MACHINE...]", "Show the steps that took longest",
		"Show the steps of all objects, the longest first.",
		"  hostler analyze blame\n  hostler analyze blame -o json", a.printBlame)
	cmd := &cobra.Command{
		Use:   "analyze",
		Short: "Show where the time of machines went",
		Long: "Show where the time went: the preparation of the host, the image, the wait for other machines,\n" +
			"the creation, the start, the boot and its part that cloud-init of the guest took.",
		Example: "  hostler analyze blame\n  hostler analyze show web",
		Args:    cobra.ArbitraryArgs,
		RunE:    onlyCommands,
	}
	cmd.AddCommand(show, blame)
	return cmd
}

// analysis returns a subcommand that prints the times of the named machines, or
// of all objects.
func (a *app) analysis(use, short, long, example string, show func([]objectTimes) error) *cobra.Command {
	return prints(&cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := a.times(cmd.Context(), args)
			if err != nil {
				return err
			}
			return show(all)
		},
		ValidArgsFunction: a.completeMachines,
	}, outTable, outJSON, outYAML)
}

// objectTimes are the times of an object's steps in seconds; 0 means that there
// was no such step.
type objectTimes struct {
	Object  string  `json:"object"`
	Prepare float64 `json:"prepare"`
	spec.Took
	Total float64 `json:"total"`
}

// stepTime is the time of a step in seconds.
type stepTime struct {
	Object string  `json:"object"`
	Step   string  `json:"step"`
	Time   float64 `json:"time"`
}

// times returns the times of the named machines, or of all types and machines.
func (a *app) times(ctx context.Context, names []string) ([]objectTimes, error) {
	agent := a.agent()
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	var all []objectTimes
	if len(names) == 0 {
		st, err := agent.Status(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range st.Types {
			events, err := lastEvents(ctx, agent, "type/"+t.Type, maxEvents)
			if err != nil {
				return nil, err
			}
			if took := prepared(events); took > 0 {
				all = append(all, objectTimes{Object: "type/" + t.Type, Prepare: took.Seconds(), Total: took.Seconds()})
			}
		}
	}
	machines, err := agent.Machines(ctx, names...)
	if len(names) > 0 {
		err = near(ctx, agent, machineNamed(names[0]), err)
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(machines, func(a, b client.Machine) int { return natural(a.Name, b.Name) })
	for _, m := range machines {
		if m.Took != nil {
			all = append(all, objectTimes{Object: "machine/" + m.Name, Took: *m.Took, Total: m.Took.Total()})
		}
	}
	return all, nil
}

// prepared returns the duration of a type's last successful preparation.
func prepared(events []client.Event) (took time.Duration) {
	var began time.Time
	for _, e := range events {
		switch e.Reason {
		case "Initialising":
			began = e.Time
		case "Initialised":
			if !began.IsZero() {
				took = e.Time.Sub(began)
			}
		}
	}
	return max(took, 0)
}

// steps returns the steps that took time, in their order.
func (o objectTimes) steps() (all []stepTime) {
	for _, s := range []stepTime{
		{Step: "prepare", Time: o.Prepare},
		{Step: "image", Time: o.Image},
		{Step: "turn", Time: o.Turn},
		{Step: "create", Time: o.Create},
		{Step: "start", Time: o.Start},
		{Step: "boot", Time: o.Boot - o.CloudInit},
		{Step: "cloud-init", Time: o.CloudInit},
	} {
		if s.Time > 0 {
			s.Object = o.Object
			all = append(all, s)
		}
	}
	return all
}

func (a *app) printTimes(all []objectTimes) error {
	if a.output != outTable {
		return a.document(pick(all, every(len(all))))
	}
	if len(all) == 0 {
		a.note("no machine was created yet")
		return nil
	}
	t := &table{head: []string{"OBJECT", "PREPARE", "IMAGE", "TURN", "CREATE", "START", "BOOT", "CLOUD-INIT", "TOTAL"}}
	for _, o := range all {
		t.add(o.Object, lasting(o.Prepare), lasting(o.Image), lasting(o.Turn), lasting(o.Create), lasting(o.Start), lasting(o.Boot), lasting(o.CloudInit), lasting(o.Total))
	}
	return a.rows(t)
}

func (a *app) printBlame(all []objectTimes) error {
	steps := []stepTime{}
	for _, o := range all {
		steps = append(steps, o.steps()...)
	}
	slices.SortStableFunc(steps, func(a, b stepTime) int { return cmp.Compare(b.Time, a.Time) })
	if a.output != outTable {
		return a.document(steps)
	}
	if len(steps) == 0 {
		a.note("no machine was created yet")
		return nil
	}
	t := &table{head: []string{"TIME", "STEP", "OBJECT"}}
	for _, s := range steps {
		t.add(lasting(s.Time), s.Step, s.Object)
	}
	return a.rows(t)
}

// lasting formats seconds, e.g. 4ms, 2.25s, 12.3s or 1m12s. It returns "" for 0.
func lasting(seconds float64) string {
	switch {
	case seconds <= 0:
		return ""
	case seconds < 0.1:
		return fmt.Sprintf("%.0fms", seconds*1000)
	case seconds < 10:
		return fmt.Sprintf("%.2fs", seconds)
	case seconds < 60:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return short(time.Duration(seconds * float64(time.Second)))
}
