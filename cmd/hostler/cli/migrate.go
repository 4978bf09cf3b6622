package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// migrateTimeout is the default of --timeout: root disks are copied.
const migrateTimeout = 2 * time.Hour

func (a *app) migrateCommand() *cobra.Command {
	var yes bool
	var timeout time.Duration
	cmd := prints(&cobra.Command{
		Use:   "migrate lxd incus [MACHINE...]",
		Short: "Move machines from LXD to Incus",
		Long: "Show the plan to move machines (all LXD machines by default) with their data from LXD to Incus\n" +
			"on this host. With --yes the machines move, one after the other: each is stopped, copied, compared\n" +
			"file by file with the original, started in Incus, and removed from LXD once it runs there. A machine\n" +
			"whose move fails stays in LXD and is started again. The agent goes on even if this command ends.",
		Example: "  hostler migrate lxd incus\n  hostler migrate lxd incus web --yes",
		Args:    takes(2, -1, "two types and any MACHINEs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return usage("--timeout must be positive, got %s", timeout)
			}
			var names []string
			for _, s := range args[2:] {
				name, err := parseMachine(s)
				if err != nil {
					return err
				}
				names = append(names, name)
			}
			return a.migrate(cmd.Context(), args[0], args[1], names, yes, timeout)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return a.completeMachines(cmd, args, word)
			}
			var types []string
			for _, i := range spec.ContainerTypes() {
				switch {
				case i.MovesTo == "":
				case len(args) == 0:
					types = append(types, string(i.Type))
				case args[0] == string(i.Type):
					types = append(types, string(i.MovesTo))
				}
			}
			return types, cobra.ShellCompDirectiveNoFileComp
		},
	}, outTable, outJSON, outYAML)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "move the machines, and wait until they run in Incus")
	addTimeout(cmd, &timeout, "--yes waits")
	timeout = migrateTimeout
	cmd.Flags().Lookup("timeout").DefValue = duration(migrateTimeout)
	return cmd
}

func (a *app) migrate(ctx context.Context, from, to string, names []string, yes bool, timeout time.Duration) error {
	agent := a.agent()
	steps, err := agent.Migrate(ctx, from, to, names, !yes)
	if err != nil {
		return err
	}
	if err := a.printMigration(steps); err != nil {
		return err
	}
	var g goals
	var broken []error
	for _, s := range steps {
		if s.Refused != "" {
			broken = append(broken, fmt.Errorf("machine/%s is not moved: %s", line(s.Machine), line(s.Refused)))
			continue
		}
		g.ready = append(g.ready, machineNamed(s.Machine))
	}
	if yes && len(g.ready) > 0 {
		g.check = func(ctx context.Context) (map[string]string, error) {
			todo := map[string]string{}
			err := migrations(ctx, agent, g.machines(), func(name string, m spec.Migration) {
				if m.Open() {
					todo[name] = cmp.Or(m.Waits, "moving to "+string(m.To))
				}
			})
			return todo, err
		}
		err := a.waitFor(ctx, agent, g, timeout, exitError)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			broken = append(broken, err)
		}
		err = migrations(ctx, agent, g.machines(), func(name string, m spec.Migration) {
			if m.Phase == spec.MigrationFailed {
				broken = append(broken, fmt.Errorf("machine/%s stays of type %s: %s", name, m.From, line(m.Error)))
			}
		})
		if err != nil {
			broken = append(broken, err)
		}
	}
	return together(ctx, broken)
}

// migrations calls see with the last migration of each machine.
func migrations(ctx context.Context, agent agent, names []string, see func(name string, m spec.Migration)) error {
	for _, name := range slices.Sorted(slices.Values(names)) {
		o, err := agent.Show(ctx, spec.KindMachine, name)
		if err != nil {
			return err
		}
		var r spec.MachineRecord
		if err := json.Unmarshal(o.Spec, &r); err != nil {
			return err
		}
		if r.Migration != nil {
			see(name, *r.Migration)
		}
	}
	return nil
}

func (a *app) printMigration(steps []client.MigrationStep) error {
	if a.output != outTable {
		return a.document(steps)
	}
	if len(steps) == 0 {
		a.note("there is no machine to move")
		return nil
	}
	t := table{head: []string{"MACHINE", "MOVE", "DETAIL"}}
	for _, s := range steps {
		if s.Refused != "" {
			t.add(line(s.Machine), "no", line(s.Refused))
		} else {
			t.add(line(s.Machine), "yes", line(s.Detail))
		}
	}
	return a.rows(&t)
}
