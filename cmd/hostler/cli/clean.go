package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/paths"
)

// The units of the agent and its workers.
const (
	agentUnit   = "hostlerd.service"
	workerUnits = "hostler-provisioner@*.service"
)

func (a *app) cleanCommand() *cobra.Command {
	var release bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove the record of this host, for an image of its disk",
		Long: "Stop hostlerd and remove its record of this host (store, identity, leases, logs, caches), so that\n" +
			"each copy of the disk starts as a new host. `cloud-init clean` runs this command too. /etc/hostler\n" +
			"with its declarations is kept.\n" +
			"It removes no instance, network, volume or filesystem, and refuses while the host has any that\n" +
			"hostler made. With --release the instances of machines are kept, undeclared.\n" +
			"After success hostlerd stays stopped until the next boot; after a refusal it runs as before.",
		Example: "  sudo hostler clean\n  sudo hostler clean --release",
		Args:    takes(0, 0, ""),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.clean(cmd.Context(), release, timeout) },
	}
	cmd.Flags().BoolVar(&release, "release", false, "first let all machines go: their instances live on, undeclared")
	addTimeout(cmd, &timeout, "--release waits for the machines")
	return cmd
}

func (a *app) clean(ctx context.Context, release bool, timeout time.Duration) error {
	switch {
	case timeout <= 0:
		return usage("--timeout must be positive, got %s", timeout)
	case a.socket != defaultSocket:
		return usage("clean is for the agent of %s, not of %s", defaultSocket, line(a.socket))
	case errors.Is(unix.Access(filepath.Join("/", a.env.Root, paths.DefaultStateDir), unix.W_OK), unix.EACCES):
		return fail(exitError, "only root may clean this host").hint("use sudo")
	}
	active := a.agentActive(ctx)
	agent := a.agent()
	rest, err := remains(ctx, agent)
	switch {
	case errors.Is(err, client.ErrNotRunning) && !active:
		rest = remainder{offline: true}
	case err != nil:
		return err
	}
	if release && len(rest.machines) > 0 {
		if err := a.releaseAll(ctx, agent, rest.machines, timeout); err != nil {
			return err
		}
		if rest, err = remains(ctx, agent); err != nil {
			return err
		}
	}
	if err := rest.refusal(); err != nil {
		return err
	}
	err = a.forget(ctx, active)
	if err != nil && active {
		// The agent runs again even if the user interrupts the command.
		if _, unstarted := a.env.Run(context.WithoutCancel(ctx), paths.Systemctl, "start", agentUnit); unstarted != nil {
			a.remark("hostlerd is stopped: " + line(unstarted.Error()))
		}
	}
	if err != nil {
		return err
	}
	a.note("the record of this host is removed; %s is kept", filepath.Dir(systemConfig))
	if active {
		a.note("hostlerd stays stopped and its unit enabled: it starts with an empty record at the next boot")
	}
	return nil
}

// forget stops the agent and removes its record, unless objects are recorded.
func (a *app) forget(ctx context.Context, active bool) error {
	if active {
		if _, err := a.env.Run(ctx, paths.Systemctl, "stop", agentUnit, workerUnits); err != nil {
			return fmt.Errorf("cannot stop hostlerd: %w", err)
		}
	}
	said, err := a.env.Run(ctx, paths.Hostlerd, "internal", "clean")
	if err != nil {
		text := err.Error()
		if i := strings.LastIndex(text, "hostlerd: "); i >= 0 {
			text = text[i+len("hostlerd: "):]
		}
		return errors.New(text)
	}
	rest := remainder{offline: !active}
	for _, r := range referencesOf(strings.Fields(said)) {
		rest.add(r)
	}
	return rest.refusal()
}

// agentActive reports whether systemd runs the agent's unit.
func (a *app) agentActive(ctx context.Context) bool {
	if _, err := os.Stat(paths.Paths{Root: a.env.Root}.SystemdRunning()); err != nil {
		return false
	}
	state, err := a.env.Run(ctx, paths.Systemctl, "show", "--property=ActiveState", "--value", agentUnit)
	state = strings.TrimSpace(state)
	return err == nil && state != "" && state != "inactive" && state != "failed"
}

// releaseAll releases the machines and waits until their records are removed.
func (a *app) releaseAll(ctx context.Context, agent agent, machines []reference, timeout time.Duration) error {
	var broken []error
	for _, m := range machines {
		if err := agent.Release(ctx, m.name); err != nil {
			broken = append(broken, err)
		}
	}
	if err := together(ctx, broken); err != nil {
		return err
	}
	if err := a.waitFor(ctx, agent, goals{gone: machines}, timeout, exitError); err != nil {
		return err
	}
	for _, m := range machines {
		a.note("%s released: its instance lives on, without the volumes and filesystems of hostler", m)
	}
	return nil
}

// remainder holds the objects of hostler that the host still has.
type remainder struct {
	machines, others []reference
	// instances (TYPE/NAME) and data bear hostler's stamp and have no record.
	instances []string
	data      []reference
	offline   bool // the agent does not run
}

func (r *remainder) add(o reference) {
	if o.kind == spec.KindMachine {
		r.machines = append(r.machines, o)
		return
	}
	r.others = append(r.others, o)
}

// remains asks the agent for the objects that the host still has.
func remains(ctx context.Context, agent agent) (r remainder, err error) {
	status, err := agent.Status(ctx)
	if err != nil {
		return r, err
	}
	for _, kind := range []string{spec.KindMachine, spec.KindNetwork, spec.KindFilesystem, spec.KindVolume} {
		l, err := list(ctx, agent, kind)
		if err != nil {
			return r, err
		}
		for _, name := range l.names {
			r.add(reference{kind, name})
		}
	}
	for _, i := range status.Unknown {
		r.instances = append(r.instances, i.Type+"/"+i.Name)
	}
	for _, i := range status.Moved {
		r.instances = append(r.instances, i.Type+"/"+i.Name)
	}
	for _, s := range status.UnknownStorage {
		r.data = append(r.data, reference{s.Kind, s.Name})
	}
	return r, nil
}

// refusal returns the reason why the host cannot be cleaned, or nil.
func (r remainder) refusal() error {
	recorded := slices.Concat(r.machines, r.others)
	var names, mends []string
	for _, o := range recorded {
		names = append(names, o.String())
	}
	if len(recorded) > 0 {
		mends = append(mends, "`hostler delete "+strings.Join(names, " ")+" --wait` removes "+pronoun(recorded))
	}
	if len(r.machines) > 0 {
		mends = append(mends, "`hostler clean --release` keeps the instances of machines, undeclared")
	}
	for _, i := range r.instances {
		names = append(names, i)
		mends = append(mends, "`hostler adopt "+i+"` makes a machine of the instance "+i)
	}
	for _, d := range r.data {
		names = append(names, "the data of "+d.String())
		mends = append(mends, "declare "+d.String()+" again and delete it without `retain: true`")
	}
	if len(names) == 0 {
		return nil
	}
	if r.offline { // and so it is not known which of them have a record
		mends = []string{"start the agent with `systemctl start hostlerd` and clean again, which says how to remove or keep them"}
	}
	return fail(exitError, "cannot clean this host: it still has %s", line(strings.Join(names, ", "))).hint(line(strings.Join(mends, "; ")))
}

func pronoun(objects []reference) string {
	if len(objects) == 1 {
		return "it"
	}
	return "them"
}
