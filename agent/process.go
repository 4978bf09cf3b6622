package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"hostler/agent/logging"
	"hostler/agent/reconcile"
	"hostler/agent/services/metrics"
	"hostler/agent/services/supervise"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/workerapi"
	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/idle"
	"hostler/internal/paths"
)

// Placement says where provisioners run.
type Placement string

// The placements. Auto means Units if this process runs in a unit of the host's
// systemd and uses the default state directory. Otherwise Auto means Inside.
const (
	Auto      Placement = "auto"
	Inside    Placement = "inside"    // goroutines of the agent
	Units     Placement = "units"     // systemd units, started by the agent
	Elsewhere Placement = "elsewhere" // processes that the agent does not start
)

// Resolve replaces Auto by Units or Inside.
func (w Placement) Resolve(p paths.Paths) (Placement, error) {
	switch w {
	case Inside, Units, Elsewhere:
		return w, nil
	case Auto, "":
	default:
		return "", fault.New(fault.Invalid, "cannot run provisioners %q: the placements are auto, inside, units and elsewhere", string(w))
	}
	if hasUnits(p) && os.Getenv("INVOCATION_ID") != "" {
		return Units, nil
	}
	return Inside, nil
}

// hasUnits reports whether the agent with the paths p uses the units of the
// host's systemd. Only the agent with the default state directory uses them.
func hasUnits(p paths.Paths) bool {
	_, err := os.Stat(p.SystemdRunning())
	return err == nil && p.StateDir == paths.DefaultStateDir
}

// limited reports whether this process has only the rights of a unit, because
// it is the main process of a unit of the host's systemd. SYSTEMD_EXEC_PID is
// also set in a child of such a process, but differs from the child's process
// number (systemd.exec(5)).
func (h *host) limited() bool {
	_, err := os.Stat(h.paths.SystemdRunning())
	return h.placement == Units || err == nil && os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// RunWorker runs the named worker in this process until ctx ends. The worker
// reads and writes the store over the agent's socket.
func RunWorker(ctx context.Context, name string, o Options) error {
	word, ok := strings.CutPrefix(name, "provisioner-")
	t := spec.ContainerType(word)
	made := drivers()[t]
	if !ok || made.remote == nil {
		return fault.New(fault.Invalid, "cannot run worker %q: those that run by themselves are %s", name, strings.Join(remoteWorkers(), ", "))
	}
	store := workerapi.NewStore(o.Paths.Socket(), word)
	defer store.Close()
	config, err := readConfigOver(ctx, store)
	if err != nil {
		return err
	}
	folder, err := recordedFolder(ctx, store, t)
	if err != nil {
		return err
	}
	p := o.Paths
	p.Used = []string{folder}
	broker, err := made.remote(p, config, o.Logger.With("driver", word))
	if err != nil {
		return err
	}
	if here := made.folderIn(p, config.Types); folder != "" && here != folder {
		return fault.New(fault.NotReady, "the %s machines have their instances in %s, not in %s: `hostler status` shows how to mend that", t, folder, here)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sup := supervise.New(o.Logger, time.Now)
	sup.Start(ctx, "watchdog", keepAlive(nil, o.Logger))
	counts := metrics.NewCounts()
	sup.Start(ctx, "counts", func(ctx context.Context) error { return counts.Send(ctx, store.Count, metrics.CountsEvery) })
	memory := idle.New(o.Logger.With("part", "memory"))
	sup.Start(ctx, "memory", memory.Run)
	sup.Start(ctx, name, func(ctx context.Context) error {
		// A worker that lost the agent finds the next one, perhaps with settings that
		// the broker was not made for. The service manager starts this process again.
		now, err := readConfigOver(ctx, store)
		if err != nil {
			return err
		}
		if now.Namespace != config.Namespace || now.Types != config.Types {
			o.Logger.Info("The configuration changed, so the worker ends and is to be started again.", "worker", name)
			cancel()
			return nil
		}
		log := o.Logger.With("worker", name)
		return provision(ctx, t, reconcile.Common{Store: logging.Events{Backend: store, Log: log}, Metrics: workerMetrics{counts, memory.Busy}, Now: time.Now, Logger: log}, broker, agentImages{store}, config)
	})
	o.Logger.Info("The worker is ready.", "worker", name)
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		o.Logger.Warn("The service manager cannot be notified that the worker is ready.", "error", err)
	}
	<-ctx.Done()
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	sup.Wait()
	return nil
}

// RunStep takes one step of a container type: it reads the order from in and
// writes the answer to out.
func RunStep(ctx context.Context, name string, in io.Reader, out io.Writer) error {
	step := drivers()[spec.ContainerType(name)].step
	if step == nil {
		return fault.New(fault.Invalid, "cannot take a step of container type %q: it has none", name)
	}
	return step(ctx, in, out)
}

// remoteWorkers returns the names of the workers that can run in a separate
// process.
func remoteWorkers() []string {
	var names []string
	for t, c := range drivers() {
		if c.remote != nil {
			names = append(names, "provisioner-"+string(t))
		}
	}
	slices.Sort(names)
	return names
}

// readConfigOver reads the host's configuration over store, the agent's socket.
func readConfigOver(ctx context.Context, store state.Store) (spec.Config, error) {
	o, err := store.Get(ctx, state.ID{Kind: spec.KindHost, Name: spec.HostName})
	if err != nil {
		return spec.Config{}, fmt.Errorf("cannot read the host's configuration from the agent: %w", err)
	}
	var record spec.HostRecord
	err = o.Decode(&record, nil)
	return record.Config, err
}

// agentImages asks the agent to make images available.
type agentImages struct{ store *workerapi.Store }

// EnsureImage implements provisioner.Images.
func (a agentImages) EnsureImage(ctx context.Context, ref string, progress containerbroker.Progress) (string, error) {
	return a.store.EnsureImage(ctx, ref, func(message string, percent int) { progress.Report("image", message, percent) })
}
