package spec

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Recovery is the record of losses of the store. It says how far the recovery
// of records is and which store stamped an instance. Workers, the API and plans
// call Withheld() and Scanned(). Package agent/recovery changes the record.
type Recovery struct {
	Lineage
	Phase RecoveryPhase `json:"phase,omitempty"`
	// Pending lists the scans that the recovery waits for, e.g. lxd and storage.
	// It is empty outside of the phase scanning.
	Pending []string `json:"pending,omitempty"`
	// Scans lists what was searched for missing records since the store was
	// created or lost: container types and ScanStorage. Before a type's scan, a
	// missing record of the type may mean that the store was lost.
	Scans []string `json:"scans,omitempty"`
	// Machine is the digest of the machine-id of the host whose store this is.
	// CopiedTo is that of the present host, or noMachine, if it differs, e.g.
	// because the disk is a copy of the other host's. Then no destructive step is
	// permitted.
	Machine  string `json:"machine,omitempty"`
	CopiedTo string `json:"copied-to,omitempty"`
}

// noMachine stands for the digest of a machine-id that is absent or unreadable.
const noMachine = "none"

// SeeMachine compares the digest of the host's machine-id with the recorded
// digest. An empty digest means that the machine-id is unknown, e.g. on a copy
// whose file was emptied. So a host with a recorded digest counts as another one.
func (r *Recovery) SeeMachine(digest string) {
	if r.Machine == "" || r.Machine == digest {
		r.Machine, r.CopiedTo = digest, ""
		return
	}
	r.CopiedTo = cmp.Or(digest, noMachine)
}

// AdoptHost makes the store that of the present host. Without a machine-id, the
// first one that the host has is recorded.
func (r *Recovery) AdoptHost() {
	switch r.CopiedTo {
	case "":
		return
	case noMachine:
		r.Machine = ""
	default:
		r.Machine = r.CopiedTo
	}
	r.CopiedTo = ""
}

// Copied returns why the store may be another host's, or "".
func (r Recovery) Copied() string {
	switch r.CopiedTo {
	case "":
		return ""
	case noMachine:
		return "the store was made on a host with a machine-id, and this host has none in /etc/machine-id"
	}
	return "the store was made on a host with another machine-id"
}

// ScanStorage names the scan of volumes and filesystems.
const ScanStorage = "storage"

// RecoveryPhase is the phase of a store's recovery.
type RecoveryPhase string

// The phases.
const (
	// RecoveryNone means that no records were lost.
	RecoveryNone RecoveryPhase = ""
	// RecoveryScanning means that records were lost, or that the store is an older
	// copy. Some instances or storage were not yet searched for the missing
	// records.
	RecoveryScanning RecoveryPhase = "scanning"
	// RecoveryWhole means that the missing records were restored.
	RecoveryWhole RecoveryPhase = "whole"
)

// Adopt takes the scans over from the host's status, where an earlier version
// recorded them.
func (r *Recovery) Adopt(s *HostStatus) {
	r.Scans = append(r.Scans, s.Known...)
	if s.KnownStorage {
		r.Scans = append(r.Scans, ScanStorage)
	}
	s.Known, s.KnownStorage = nil, false
}

// Begin starts the recovery of missing records from the instances of the types
// and from the storage.
func (r *Recovery) Begin(types []ContainerType) {
	r.Phase, r.Scans, r.Pending = RecoveryScanning, nil, nil
	for _, t := range types {
		r.Pending = append(r.Pending, string(t))
	}
	r.Pending = append(r.Pending, ScanStorage)
}

// Scanned reports whether the instances of a type, or the storage, were
// searched for missing records. what is the type or ScanStorage.
func (r Recovery) Scanned(what string) bool { return slices.Contains(r.Scans, what) }

// Compared reports whether the type's records are complete and its instances
// were compared with the records in this opening of the store.
func (r Recovery) Compared(t ContainerType) bool {
	_, waits := r.Uncompared[t]
	return r.Scanned(string(t)) && !waits
}

// Done records the end of a scan. what is a container type or ScanStorage.
func (r *Recovery) Done(what string) {
	delete(r.Uncompared, ContainerType(what))
	if !r.Scanned(what) {
		r.Scans = append(r.Scans, what)
	}
	r.Drop(what)
}

// Drop removes a scan from those that the recovery waits for, e.g. of a
// hypervisor that the host does not have.
func (r *Recovery) Drop(what string) {
	r.Pending = slices.DeleteFunc(r.Pending, func(p string) bool { return p == what })
}

// Dropped reports whether a scan was dropped that was not made since, so that
// records may be missing.
func (r Recovery) Dropped(what string) bool {
	return r.Phase != RecoveryNone && !r.Scanned(what) && !slices.Contains(r.Pending, what)
}

// Await makes the recovery wait for a dropped scan again, e.g. of a hypervisor
// that started after the agent.
func (r *Recovery) Await(what string) {
	if r.Dropped(what) {
		r.Phase, r.Pending = RecoveryScanning, append(r.Pending, what)
	}
}

// Asked records that a type's hypervisor was asked in this opening of the store,
// but did not answer or is not on the host. Storage no longer waits for it.
func (r *Recovery) Asked(t ContainerType) {
	if u, waits := r.Uncompared[t]; waits {
		u.Asked = true
		r.Uncompared[t] = u
	}
}

// End ends the recovery if no scan is pending. If the store is an older copy,
// it gets the id.
func (r *Recovery) End(id string) {
	if r.Phase != RecoveryScanning || len(r.Pending) > 0 {
		return
	}
	r.Phase = RecoveryWhole
	if r.Old {
		r.renew(id)
	}
}

// Withheld returns what destructive steps wait for, e.g. "lxd to be compared
// with the records", or "" if the steps are permitted. t is the container type
// of the steps' instances. It is empty for steps on storage and on bridges that
// nothing declares, because instances of any type may use those.
func (r Recovery) Withheld(t ContainerType) string {
	if why := r.Copied(); why != "" {
		return "`hostler adopt --host` or `hostler clean`, because " + why
	}
	pending := slices.Clone(r.Pending)
	if _, waits := r.Uncompared[t]; waits {
		pending = []string{string(t)}
	} else if t != "" && !r.Old && !slices.Contains(pending, string(t)) {
		pending = nil // a type waits for other types only if the store is an older copy
	} else if t == "" {
		for _, other := range slices.Sorted(maps.Keys(r.Uncompared)) {
			if r.Scanned(string(other)) && !r.Uncompared[other].Asked {
				pending = append(pending, string(other))
			}
		}
	}
	if len(pending) == 0 {
		return ""
	}
	return strings.Join(pending, ", ") + " to be compared with the records"
}
