package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/spec"
)

// powerCommand returns the command start, stop or restart.
func (a *app) powerCommand(action, short, long string) *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   action + " MACHINE...",
		Short: short,
		Long:  long,
		Args:  takes(1, -1, "a MACHINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return usage("--timeout must be positive, got %s", timeout)
			}
			var names []string
			for _, s := range args {
				name, err := parseMachine(s)
				if err != nil {
					return err
				}
				names = append(names, name)
			}
			return a.power(cmd.Context(), action, names, wait, timeout)
		},
		ValidArgsFunction: a.completeMachines,
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is done")
	addTimeout(cmd, &timeout, "--wait waits")
	return cmd
}

func (a *app) power(ctx context.Context, action string, names []string, wait bool, timeout time.Duration) error {
	agent := a.agent()
	var g goals
	var broken []error
	for _, name := range names {
		if err := agent.Power(ctx, name, action); err != nil {
			if ctx.Err() != nil {
				return err
			}
			broken = append(broken, near(ctx, agent, machineNamed(name), err))
			continue
		}
		g.ready = append(g.ready, machineNamed(name))
		if !wait {
			a.note("machine/%s: %s requested", name, action)
		}
	}
	if wait && len(g.ready) > 0 {
		g.check = func(ctx context.Context) (map[string]string, error) { return restarting(ctx, agent, g.machines()) }
		err := a.waitFor(ctx, agent, g, timeout, exitError)
		if len(broken) == 0 || ctx.Err() != nil {
			return err
		}
		if err != nil {
			broken = append(broken, err)
		}
	}
	return together(ctx, broken)
}

// restarting returns a text for each machine whose requested restart is not
// done, keyed by machine.
func restarting(ctx context.Context, agent agent, names []string) (map[string]string, error) {
	todo := map[string]string{}
	for _, name := range names {
		o, err := agent.Show(ctx, spec.KindMachine, name)
		if err != nil {
			return nil, err
		}
		var r spec.MachineRecord
		var s spec.MachineStatus
		if json.Unmarshal(o.Spec, &r) == nil && json.Unmarshal(o.Status, &s) == nil && r.RestartRequest > s.RestartsDone {
			todo[name] = "about to be restarted"
		}
	}
	return todo, nil
}

func (a *app) retryCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "retry KIND/NAME...",
		Short: "Clear an error and retry immediately",
		Long: "Clear the error of a machine, a network, a volume, a filesystem or of a container type (type/lxd)\n" +
			"and have it tried at once. With --force a volume or filesystem that something holds is detached\n" +
			"nevertheless: the holder keeps its open files, and data that it writes there may be lost.",
		Args: takes(1, -1, "a KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var objects []string
			for _, s := range args {
				o, err := eventObject(s)
				if err != nil {
					return err
				}
				objects = append(objects, o)
			}
			agent := a.agent()
			var broken []error
			for _, o := range objects {
				if err := agent.Retry(cmd.Context(), o, force); err != nil {
					if cmd.Context().Err() != nil {
						return err
					}
					if r, unnamed := parseReference(o); unnamed == nil {
						err = near(cmd.Context(), agent, r, err)
					}
					broken = append(broken, err)
					continue
				}
				a.note("%s is tried again", o)
			}
			return together(cmd.Context(), broken)
		},
		ValidArgsFunction: a.completeTried,
	}
	cmd.Flags().BoolVar(&force, "force", false, "detach a volume or filesystem although something holds it")
	return cmd
}

// containerTypes are the types that TYPE/INSTANCE accepts.
var containerTypes = spec.TypeNames()

func (a *app) adoptCommand() *cobra.Command {
	var host bool
	cmd := &cobra.Command{
		Use:   "adopt TYPE/INSTANCE | --host",
		Short: "Take over an instance that hostler did not make, or a copied host",
		Long: "Take over an instance that exists: it becomes a machine of that name, and the agent keeps it\nfrom then on. `hostler export` writes the declaration of it.\n\n" +
			"With --host, take over the store of a copied host. On a host with another machine-id than the\nhost that made the store, the agent deletes nothing until then.",
		Example: "  hostler adopt lxd/web\n  hostler adopt --host",
		Args: func(cmd *cobra.Command, args []string) error {
			if host {
				return takes(0, 0, "")(cmd, args)
			}
			return takes(1, 1, "one TYPE/INSTANCE, or --host")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if host {
				err := a.agent().AdoptHost(cmd.Context())
				if err == nil {
					a.note("the store is this host's; destructive steps are permitted again")
				}
				return err
			}
			word, instance, ok := strings.Cut(args[0], "/")
			switch {
			case !ok || instance == "":
				return usage("%q is not TYPE/INSTANCE", args[0]).hint("like lxd/web; types are " + strings.Join(containerTypes, ", "))
			case !slices.Contains(containerTypes, word):
				return usage("unknown container type %q%s", word, didYouMean(word, containerTypes)).
					hint("types are " + strings.Join(containerTypes, ", "))
			}
			m, err := a.agent().Adopt(cmd.Context(), word, instance)
			if err != nil {
				return err
			}
			a.note("machine/%s adopted; `hostler export %s` writes its declaration", line(m.Name), line(m.Declaration))
			return nil
		},
		ValidArgsFunction: completeTypes,
	}
	cmd.Flags().BoolVar(&host, "host", false, "take over the store of a copied host")
	return cmd
}

func (a *app) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release MACHINE",
		Short: "Let a machine's instance go: it lives on, undeclared",
		Args:  takes(1, 1, "one MACHINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, err := parseMachine(args[0])
			if err != nil {
				return err
			}
			agent := a.agent()
			if err := agent.Release(cmd.Context(), machine); err != nil {
				return near(cmd.Context(), agent, machineNamed(machine), err)
			}
			a.note("machine/%s released: its instance lives on, without the volumes and filesystems of hostler", machine)
			return nil
		},
		ValidArgsFunction: a.completeMachine,
	}
}

func (a *app) exportCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "export [DECLARATION]",
		Short:   "Write the YAML of objects and instances",
		Long:    "Write YAML: one declaration, which changes nothing when it is applied here, or everything in\none document, with the instances that no document declares. The instances of a hypervisor that\nis down are left out; an error then says so and the exit code is 1.",
		Example: "  hostler export > host.yaml\n  hostler export web | hostler plan -f -",
		Args:    takes(0, 1, "one DECLARATION at most"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = strings.TrimPrefix(args[0], spec.KindDeclaration+"/")
			}
			text, missing, err := a.agent().Export(cmd.Context(), name)
			if err != nil {
				return err
			}
			if _, err := a.env.Stdout.Write(text); err != nil || len(missing) == 0 {
				return err
			}
			return fmt.Errorf("the export is not whole: %s", line(strings.Join(missing, "; ")))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeNames(cmd, spec.KindDeclaration), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// harvestModes are the arguments of harvest. "configured" ends an override.
var harvestModes = []string{"none", "unknown", "destroyed", "all", "configured"}

func (a *app) harvestCommand() *cobra.Command {
	return prints(&cobra.Command{
		Use:   "harvest [MODE]",
		Short: "Show or set the treatment of instances without a declaration",
		Long: "Show the harvest mode, or set it until it is set again:\n\n" +
			"  none        leave every instance alone\n" +
			"  unknown     delete stamped instances that have no record\n" +
			"  destroyed   delete the instance of a machine that is no longer declared (the default)\n" +
			"  all         both\n" +
			"  configured  back to the mode of hostler.yaml",
		Args: takes(0, 1, "at most one MODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			agent := a.agent()
			if len(args) == 0 {
				h, err := agent.Harvest(cmd.Context())
				if err != nil {
					return err
				}
				return a.printHarvest(h.Mode, h.Configured, h.Override, h)
			}
			mode := args[0]
			if !slices.Contains(harvestModes, mode) {
				return usage("unknown harvest mode %q%s", mode, didYouMean(mode, harvestModes)).
					hint("modes are " + strings.Join(harvestModes, ", "))
			}
			if mode == "configured" {
				mode = ""
			}
			h, err := agent.SetHarvest(cmd.Context(), mode)
			if err != nil {
				return err
			}
			return a.printHarvest(h.Mode, h.Configured, h.Override, h)
		},
		ValidArgs: harvestModes,
	}, outTable, outJSON, outYAML)
}

func (a *app) printHarvest(mode, configured, override string, whole any) error {
	if a.output != outTable {
		return a.document(whole)
	}
	text := line(mode)
	if override != "" && override != configured {
		text += fmt.Sprintf(" (set by hand; configured is %s)", orNone(configured))
	}
	fmt.Fprintln(a.env.Stdout, text)
	return nil
}
