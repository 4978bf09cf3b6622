package provisioner

import (
	"encoding/json"
	"time"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
)

// Config is the part of the host's configuration that concerns one container
// type.
type Config struct {
	Namespace              string
	Lineage                spec.Lineage
	Withheld               string // see spec.Recovery
	Harvest                Harvest
	Concurrency            int
	StartRetries           int
	RetryDelay             time.Duration
	TransientRetryInterval time.Duration
	// Pool is the storage pool for root disks. If empty, it is the hypervisor's
	// default.
	Pool  string
	Guest cloudinit.Input // for every guest: proxies, mirrors, keys
	Host  spec.HostFacts
	// ReadersSeeConsoles permits console lines in messages and events. Every
	// reader of the API sees those.
	ReadersSeeConsoles bool
}

// Owner returns the marks by which the worker recognises its own instances.
func (c Config) Owner() Owner { return Owner{c.Namespace, c.Lineage} }

// ConfigOf extracts the configuration of one container type from the host's
// record.
func ConfigOf(r spec.HostRecord, t spec.ContainerType) Config {
	c := r.Config.WithoutProxyUsers()
	return Config{
		Namespace: c.Namespace, Lineage: r.Recovery.For(t), Withheld: r.Recovery.Withheld(t), Harvest: Harvest(r.HarvestMode()), Concurrency: c.Concurrency, Pool: c.PoolOf(t),
		StartRetries: c.StartRetries, RetryDelay: time.Duration(c.RetryDelay),
		TransientRetryInterval: time.Duration(c.TransientRetryInterval),
		Guest: cloudinit.Input{
			SSHKeys:   c.AuthorizedKeys,
			HTTPProxy: c.Proxy.HTTP, HTTPSProxy: c.Proxy.HTTPS, NoProxy: c.Proxy.No,
			AptMirror: c.Apt.Mirror, AptProxy: c.Apt.Proxy,
		},
		Host: r.Facts, ReadersSeeConsoles: c.API.ReadersSeeConsoles,
	}
}

// StampedRecord is the copy of a machine's record in its instance's stamp.
// After the loss of the store it suffices to restore the record.
type StampedRecord struct {
	// Name is the instance's name. An instance with another name is a copy that an
	// operator made.
	Name string `json:"name,omitempty"`
	// MachineName is the machine's name if the machine was renamed, else "".
	MachineName string       `json:"machine-name,omitempty"`
	Declaration string       `json:"declaration"`
	Machine     spec.Machine `json:"machine"`
	// Adopted, PowerOverride and GuestLost are copied from the record. GuestLost
	// is also true if this copy of the record lacks the user-data and the keys,
	// because they were too large for the stamp.
	Adopted       bool  `json:"adopted,omitempty"`
	PowerOverride *bool `json:"power-override,omitempty"`
	GuestLost     bool  `json:"guest-lost,omitempty"`
}

// MachineRecord returns the machine's record as stored in the stamp.
func (s StampedRecord) MachineRecord() spec.MachineRecord {
	return spec.MachineRecord{
		Header: spec.Header{Declaration: s.Declaration}, Machine: s.Machine,
		Adopted: s.Adopted, PowerOverride: s.PowerOverride, GuestLost: s.GuestLost,
	}
}

// maxStampedRecord bounds the record in a stamp, in bytes. The copy of a larger
// record lacks the user-data and the keys and has GuestLost set.
const maxStampedRecord = 40 << 10

// stampedImage returns the image from which the instance was created, as the
// stamp records it. It returns fallback if the stamp names no image. The
// declaration may name another image by now.
func stampedImage(record, fallback string) string {
	var stamped StampedRecord
	if json.Unmarshal([]byte(record), &stamped) != nil || stamped.Machine.Image == "" {
		return fallback
	}
	return stamped.Machine.Image
}

// Resolve returns the machine in the form that the drivers take.
func (c Config) Resolve(d Desired) containerbroker.Machine {
	m := d.Record.Machine
	token := ""
	if d.Status.Instance != nil {
		token = d.Status.Instance.Token
	}
	stamped := StampedRecord{
		Name: d.instanceName(), Declaration: d.Record.Declaration, Machine: m,
		Adopted: d.Record.IsAdopted(token), PowerOverride: d.Record.PowerOverride, GuestLost: d.Record.GuestLost,
	}
	if d.Record.InstanceName != "" {
		stamped.MachineName = d.Name
	}
	if made := d.Status.Instance; made != nil && made.Image != "" {
		stamped.Machine.Image = made.Image // the declaration may name another image since the create
	}
	guest := c.Guest
	guest.Hostname = d.instanceName()
	guest.SSHKeys = append(append([]string(nil), c.Guest.SSHKeys...), m.SSHKeys...)
	guest.UserData = m.CloudInit.UserData
	record := spec.Encode(stamped)
	if len(record) > maxStampedRecord {
		stamped.Machine.CloudInit, stamped.Machine.SSHKeys, stamped.GuestLost = spec.CloudInit{}, nil, true
		record = spec.Encode(stamped)
	}
	return containerbroker.Machine{
		Name:       d.instanceName(),
		Stamp:      containerbroker.Stamp{Namespace: c.Namespace, UID: d.UID, Record: string(record), Store: c.Lineage.Mark(d.Revision)},
		Properties: d.properties(),
		KnownDisks: d.knownDisks(),
		Guest:      guest,
		KeepGuest:  stamped.Adopted || d.Record.GuestLost,
		// Only the machine's declaration can request that the first boot runs
		// again.
		RerunFirstBoot: m.CloudInit.OnChange == spec.OnChangeRerun,
	}
}
