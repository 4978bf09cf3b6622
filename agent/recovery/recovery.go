// Package recovery restores the records of a store that was lost, or that is an
// older copy, from the stamps of instances and storage. It is the only writer of
// spec.Recovery, on which the workers, the API and plans decide.
package recovery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"hostler/agent/provisioner"
	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/containerbroker"
	"hostler/internal/fault"
)

// Options are the dependencies of a Recovery.
type Options struct {
	Types []spec.ContainerType
	// Broker returns the broker of a type. It fails with fault.NotReady if the
	// host does not have the hypervisor.
	Broker func(t spec.ContainerType) (containerbroker.Broker, error)
	// Storage lists the volumes and filesystems of all sources.
	Storage   func(ctx context.Context) (storageprovisioner.Observed, error)
	Namespace func() string
	NewToken  func() string
	// Noted is called once the host's record says that records are missing. It
	// clears the mark with which the store itself says so.
	Noted    func(ctx context.Context) error
	StateDir string
}

// Recovery compares the records with the host. It does so once after each
// opening of the store. After a loss it compares all instances and storage.
type Recovery struct {
	reconcile.Common
	Options
	host reconcile.Host

	mu sync.Mutex // held while records are restored
	// lost is true if records may have been missing since this process started,
	// because the store was new, lost or an older copy.
	lost bool
}

// New returns a Recovery; call Start first.
func New(c reconcile.Common, o Options) *Recovery {
	c.Metrics = nil
	return &Recovery{Common: c, Options: o, host: reconcile.Host{Store: c.Store}}
}

// Start makes the agent's first writes. The very first stores the lineage, with
// the store's revision before all of this agent's writes. If the store is an
// older copy, instances may bear higher revisions. A write before the lineage
// could get one of these revisions, and the instance would no longer prove that
// the store is a copy. machine is the digest of the host's machine-id, or empty
// if it is unknown.
func (r *Recovery) Start(ctx context.Context, report state.OpenReport, boot, machine string) error {
	_, revision, err := r.Store.List(ctx, spec.KindHost)
	if err != nil {
		return fmt.Errorf("cannot read the store: %w", err)
	}
	opening, id := r.NewToken(), r.NewToken()
	err = r.host.Update(ctx, func(record *spec.HostRecord, status *spec.HostStatus) {
		l := &record.Recovery
		l.Adopt(status)
		l.SeeMachine(machine)
		scanned := slices.DeleteFunc(slices.Clone(r.Types), func(t spec.ContainerType) bool { return !l.Scanned(string(t)) })
		r.lost = l.ID == "" || len(scanned) == 0
		if l.ID == "" {
			l.ID = id
		}
		l.Open(opening, revision, r.Types, scanned)
		if report.Rebuilt || l.Old && l.Phase != spec.RecoveryScanning {
			l.Begin(r.Types)
		}
		r.lost = r.lost || l.Phase == spec.RecoveryScanning
		if report.Quarantined != "" {
			status.Notices = append(status.Notices, quarantined(report.Quarantined, report.Reason))
		}
		status.Notices = Current(status.Notices)
	})
	if err == nil && report.Rebuilt {
		r.Logger.Warn("Records may be missing in the store.", "reason", report.Reason, "quarantined", report.Quarantined)
		err = r.Noted(ctx)
	}
	if err != nil {
		return err
	}
	return r.forgetBoot(ctx, boot)
}

// Lateness is the delay between two looks for a hypervisor that may start after
// the agent.
const Lateness = 10 * time.Second

// Run returns the worker that restores the records of a type, before the user
// declares anything again. After a loss, and for a type that the host had
// before, the worker also looks for a hypervisor that starts after the agent,
// at the interval every.
func (r *Recovery) Run(t spec.ContainerType, every time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		return reconcile.NewFrame(r.Common).Run(ctx, reconcile.Work{
			Objects: "host", Kinds: []string{spec.KindHost}, LongestDelay: every,
			Pass: func(ctx context.Context) (next time.Time, err error) {
				if err := r.Scan(ctx, t); !fault.Is(err, fault.NotReady) {
					return next, err
				}
				record, err := r.record(ctx)
				if record.Phase != spec.RecoveryNone || record.Scanned(string(t)) {
					next = r.Now().Add(every)
				}
				return next, err
			},
		})
	}
}

// Prepared scans a type before its provisioner starts. If the type was scanned
// before and the hypervisor does not answer, the provisioner starts anyway. It
// reports in the machines' statuses that the hypervisor does not answer, and
// Run() tries again.
func (r *Recovery) Prepared(ctx context.Context, t spec.ContainerType) error {
	err := r.Scan(ctx, t)
	if record, unread := r.record(ctx); err == nil || unread != nil || record.Phase == spec.RecoveryScanning || !record.Scanned(string(t)) {
		return err
	}
	r.Logger.Warn("Whether the store is an older copy is not known yet.", "type", t, "error", err)
	return nil
}

// Scan compares the storage and a type's instances with the records, and
// restores missing records. It changes neither storage nor instances. It fails
// with fault.NotReady if there is no hypervisor. The recovery does not wait for
// one, because a hypervisor that is set up later is scanned then.
func (r *Recovery) Scan(ctx context.Context, t spec.ContainerType) error {
	// Machines refer to storage, so storage comes first. Unless records were lost,
	// a failed scan of the storage holds up no machine.
	if err := r.ScanStorage(ctx); err != nil {
		if record, unread := r.record(ctx); unread != nil || record.Phase == spec.RecoveryScanning || ctx.Err() != nil {
			return err
		}
		r.Logger.Warn("The storage that is there cannot be compared with the records yet.", "error", err)
	}
	err := r.scanMachines(ctx, t)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if unwritten := r.update(ctx, func(record *spec.Recovery) {
		if record.Asked(t); fault.Is(err, fault.NotReady) {
			record.Drop(string(t))
		}
	}); unwritten != nil {
		return unwritten
	}
	return err
}

// Await makes the recovery wait for the scans of hypervisors that appeared after
// the scans were dropped. The storage worker calls it before it reads the
// records. Otherwise, it would take storage from instances whose machines are
// not restored yet.
func (r *Recovery) Await(ctx context.Context) error {
	record, err := r.record(ctx)
	if err != nil {
		return err
	}
	late := slices.DeleteFunc(slices.Clone(r.Types), func(t spec.ContainerType) bool {
		if !record.Dropped(string(t)) {
			return true
		}
		_, err := r.Broker(t)
		return fault.Is(err, fault.NotReady)
	})
	if len(late) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = true
	return r.update(ctx, func(record *spec.Recovery) {
		for _, t := range late {
			record.Await(string(t))
		}
	})
}

// done records the end of a scan that restored found records. objects names
// them in a notice. predecessors are the stores whose stamps were found.
func (r *Recovery) done(ctx context.Context, scan string, found int, objects string, predecessors map[string]int64) error {
	var notices []string
	if found > 0 {
		r.Logger.Warn("Records were written again from stamps.", "type", scan, "objects", found)
		notices = append(notices, fmt.Sprintf("%d %s were recognised after the agent's records were lost", found, objects))
	}
	return r.update(ctx, func(record *spec.Recovery) {
		for id, revision := range predecessors {
			record.Precede(id, revision)
		}
		record.Done(scan)
	}, notices...)
}

// update changes the record, ends the recovery if nothing is pending, and adds
// notices.
func (r *Recovery) update(ctx context.Context, change func(*spec.Recovery), notices ...string) error {
	id := r.NewToken()
	return r.host.Update(ctx, func(record *spec.HostRecord, status *spec.HostStatus) {
		change(&record.Recovery)
		record.Recovery.End(id)
		status.Notices = Current(append(status.Notices, notices...))
	})
}

func (r *Recovery) record(ctx context.Context) (spec.Recovery, error) {
	record, _, _, err := r.host.Read(ctx)
	return record.Recovery, err
}

// owner returns the namespace and lineage that identify this agent's instances
// of a type.
func (r *Recovery) owner(record spec.Recovery, t spec.ContainerType) provisioner.Owner {
	return provisioner.Owner{Namespace: r.Namespace(), Lineage: record.For(t)}
}
