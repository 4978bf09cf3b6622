package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

func (a *app) statusCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := prints(&cobra.Command{
		Use:   "status",
		Short: "Show this host at a glance",
		Long: "Show the agent, its workers, the container types and how far their initialisation is,\n" +
			"machines by status, instances and storage without a declaration, locks and disk space.\n\n" +
			"With --wait, first wait until conf.d was read and every declared object is ready. Exit code\n" +
			"0: all is ready; 1: an object failed for good, or a file is not in force; 2: all is ready,\n" +
			"but degraded, e.g. a machine differs from its declaration; 124: the time was up.",
		Example: "  hostler status\n  hostler status --wait --timeout 20m",
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !wait && cmd.Flags().Changed("timeout"):
				return usage("--timeout needs --wait")
			case timeout <= 0:
				return usage("--timeout must be positive, got %s", timeout)
			case wait:
				return a.statusWait(cmd.Context(), timeout)
			}
			return a.status(cmd.Context())
		},
	}, outTable, outJSON, outYAML)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until all declared objects are ready")
	addTimeout(cmd, &timeout, "--wait waits")
	return cmd
}

func (a *app) status(ctx context.Context) error {
	st, err := a.agent().Status(ctx)
	if err != nil {
		return err
	}
	return a.printStatus(st)
}

func (a *app) printStatus(st client.Status) error {
	if a.output != outTable {
		return a.document(fullStatus(st))
	}
	s := sheet{w: a.env.Stdout, now: a.env.Now(), colours: a.colours()}
	s.field("Agent", fmt.Sprintf("%s, namespace %s, up %s", orNone(st.Version), orNone(st.Namespace), age(s.now, &st.Started)))
	s.field("Harvest", st.Harvest)
	s.field("Machines", machineCounts(st.Machines))
	s.field("Drift", drift(st.Drifted))
	for _, n := range st.Notices {
		s.paragraph("Notice", n)
	}
	s.guarded(st.Guard)
	s.workers(st.Workers)
	s.types(st.Types)
	s.unknown(st.Unknown)
	s.moved(st.Moved)
	s.unknownStorage(st.UnknownStorage)
	s.locks(st.Locks)
	s.disk(st.Disk)
	return nil
}

// fullStatus replaces nil lists by empty lists, so that JSON shows [] instead
// of null.
func fullStatus(st client.Status) client.Status {
	st.Types = pick(st.Types, every(len(st.Types)))
	st.Workers = pick(st.Workers, every(len(st.Workers)))
	st.Unknown = pick(st.Unknown, every(len(st.Unknown)))
	st.Moved = pick(st.Moved, every(len(st.Moved)))
	st.UnknownStorage = pick(st.UnknownStorage, every(len(st.UnknownStorage)))
	st.Locks = pick(st.Locks, every(len(st.Locks)))
	st.Disk = pick(st.Disk, every(len(st.Disk)))
	st.Notices = pick(st.Notices, every(len(st.Notices)))
	st.Drifted = pick(st.Drifted, every(len(st.Drifted)))
	if st.Machines == nil {
		st.Machines = map[string]int{}
	}
	return st
}

// drift returns a text that counts the machines that differ from their
// declarations and names the first few.
func drift(names []string) string {
	const most = 8
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > most:
		return fmt.Sprintf("%d machines differ from their declarations: %s and %d more", n, strings.Join(names[:most], ", "), n-most)
	case n == 1:
		return names[0] + " differs from its declaration"
	default:
		return fmt.Sprintf("%d machines differ from their declarations: %s", n, strings.Join(names, ", "))
	}
}

// machineCounts returns e.g. "12 (1 error, 1 pending, 10 running)". Errors and
// unknown machines come first, then the other states in the order of a
// machine's life.
func machineCounts(by map[string]int) string {
	order := []string{
		string(spec.MachineError), string(spec.MachineUnknown), string(spec.MachinePending),
		string(spec.MachineProvisioning), string(spec.MachineRunning), string(spec.MachineStopped), string(spec.MachineDying),
	}
	for word := range by {
		if !slices.Contains(order, word) {
			order = append(order, word)
		}
	}
	slices.Sort(order[7:])
	sum := 0
	var parts []string
	for _, word := range order {
		if n := by[word]; n > 0 {
			sum += n
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	if sum == 0 {
		return "none"
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(parts, ", "))
}

func (s sheet) types(types []client.TypeStatus) {
	if len(types) == 0 {
		return
	}
	s.title("Container types")
	t := &table{head: []string{"  TYPE", "STATE", "SUPPORTED", "NEXT-RETRY", "MESSAGE"}}
	for _, ty := range types {
		supported := "not needed yet"
		if ty.Supported != nil {
			supported = map[bool]string{true: "yes", false: "no"}[*ty.Supported]
		}
		t.add("  "+ty.Type, ty.State, supported, until(s.now, ty.NextRetry), ty.Message)
	}
	_ = t.write(s.w, 0, s.colours.cell)
}

func (s sheet) workers(workers []client.Worker) {
	if len(workers) == 0 {
		return
	}
	var look []client.Worker
	running := 0
	for _, w := range workers {
		switch {
		case w.State == "running" || w.State == "elsewhere":
			running++
		case w.State != "stopped" || w.Message != "": // leaves out a worker that stopped without a message
			look = append(look, w)
		}
	}
	s.field("Workers", fmt.Sprintf("%d running", running))
	if len(look) == 0 {
		return
	}
	s.title("Workers that need a look")
	t := &table{head: []string{"  NAME", "STATE", "SINCE", "PASSES", "MESSAGE"}}
	for _, w := range look {
		t.add("  "+w.Name, w.State, age(s.now, &w.Since), fmt.Sprint(w.Passes), w.Message)
	}
	_ = t.write(s.w, 0, s.colours.cell)
}

func (s sheet) unknown(instances []client.UnknownInstance) {
	if len(instances) == 0 {
		return
	}
	s.title("Unknown instances (made by this agent, without a declaration)")
	t := &table{head: []string{"  TYPE", "INSTANCE", "UID"}}
	for _, u := range instances {
		t.add("  "+u.Type, u.Name, u.UID)
	}
	_ = t.write(s.w, 0, nil)
}

func (s sheet) moved(instances []client.MovedInstance) {
	if len(instances) == 0 {
		return
	}
	s.title("Moved instances (made for another container type and never deleted; see `hostler doctor`)")
	t := &table{head: []string{"  TYPE", "INSTANCE", "MADE-AS", "UID"}}
	for _, m := range instances {
		t.add("  "+m.Type, m.Name, m.MadeAs, m.UID)
	}
	_ = t.write(s.w, 0, nil)
}

func (s sheet) unknownStorage(all []client.UnknownStorage) {
	if len(all) == 0 {
		return
	}
	s.title("Unknown storage (made by this agent, without a declaration; declare it again to get the data back)")
	t := &table{head: []string{"  KIND", "NAME", "PROVIDER", "SIZE", "DEVICE", "PATH"}}
	for _, u := range all {
		bytes := ""
		if u.Size > 0 {
			bytes = size(u.Size)
		}
		t.add("  "+u.Kind, u.Name, u.Provider, bytes, u.Device, u.Path)
	}
	_ = t.write(s.w, 0, nil)
}

func (s sheet) locks(locks []client.Lock) {
	if len(locks) == 0 {
		return
	}
	s.title("Locks")
	t := &table{head: []string{"  LOCK", "HOLDER", "SINCE", "WAITING", "PURPOSE"}}
	for _, l := range locks {
		t.add("  "+l.Name, l.Holder, age(s.now, &l.Since), strings.Join(l.Waiting, ", "), l.Purpose)
	}
	_ = t.write(s.w, 0, nil)
}

func (s sheet) disk(disks []client.Disk) {
	if len(disks) == 0 {
		return
	}
	s.title("Disk")
	t := &table{head: []string{"  PATH", "FREE", "SIZE", "USED", "PROMISED"}}
	for _, d := range disks {
		used := "-"
		// As df does, compute the share of the blocks that users can have, rounded
		// up.
		if whole := d.Used + d.Free; whole > 0 {
			used = fmt.Sprintf("%d %%", (d.Used*100+whole-1)/whole)
		}
		promised := "-"
		if d.Promised > 0 {
			promised = size(d.Promised)
		}
		t.add("  "+d.Path, size(d.Free), size(d.Size), used, promised)
	}
	_ = t.write(s.w, 0, nil)
}
