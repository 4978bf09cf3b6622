package provisioner

import (
	"encoding/json"
	"time"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
)

// Config is what of the host's configuration bears on one container type.
type Config struct {
	Namespace              string
	Lineage                spec.Lineage
	Harvest                Harvest
	Concurrency            int
	StartRetries           int
	RetryDelay             time.Duration
	TransientRetryInterval time.Duration
	// Pool is the storage pool for root disks; empty: the hypervisor's own.
	Pool  string
	Guest cloudinit.Guest // what every guest is told: proxies, mirrors, keys
	Host  spec.HostFacts
	// ReadersSeeConsoles: what is told of machines may hold lines of their
	// consoles.
	ReadersSeeConsoles bool
}

// Owner is whose instances the worker takes for its own.
func (c Config) Owner() Owner { return Owner{c.Namespace, c.Lineage} }

// ConfigOf takes what bears on a container type out of the host's record.
func ConfigOf(r spec.HostRecord, t spec.ContainerType) Config {
	c := r.Config.WithoutProxyUsers()
	harvest := c.Harvest
	if r.Harvest != "" {
		harvest = r.Harvest
	}
	return Config{
		Namespace: c.Namespace, Lineage: r.Lineage, Harvest: Harvest(harvest), Concurrency: c.Concurrency, Pool: poolOf(c, t),
		StartRetries: c.StartRetries, RetryDelay: time.Duration(c.RetryDelay),
		TransientRetryInterval: time.Duration(c.TransientRetryInterval),
		Guest: cloudinit.Guest{
			SSHKeys:   c.AuthorizedKeys,
			HTTPProxy: c.Proxy.HTTP, HTTPSProxy: c.Proxy.HTTPS, NoProxy: c.Proxy.No,
			AptMirror: c.Apt.Mirror, AptProxy: c.Apt.Proxy,
		},
		Host: r.Facts, ReadersSeeConsoles: c.API.ReadersSeeConsoles,
	}
}

// poolOf is the pool that somebody chose for a type's root disks; "default" is
// the one that the hypervisor takes by itself.
func poolOf(c spec.Config, t spec.ContainerType) string {
	if t == spec.LXD && c.Types.LXD.Pool != spec.DefaultConfig().Types.LXD.Pool {
		return c.Types.LXD.Pool
	}
	if t == spec.KVM && c.Types.KVM.Pool != spec.DefaultConfig().Types.KVM.Pool {
		return c.Types.KVM.Pool
	}
	return ""
}

// StampedRecord is what an instance's stamp tells of its machine, enough to
// write the machine's record again when the store was lost.
type StampedRecord struct {
	// Name is the instance's: an instance of another name is a copy that an
	// operator made.
	Name string `json:"name,omitempty"`
	// MachineName is the name of a machine that was renamed; empty: Name.
	MachineName string       `json:"machine-name,omitempty"`
	Declaration string       `json:"declaration"`
	Machine     spec.Machine `json:"machine"`
	// Adopted, PowerOverride and GuestLost are the record's own; the last also
	// says that the machine's user-data did not fit here.
	Adopted       bool  `json:"adopted,omitempty"`
	PowerOverride *bool `json:"power-override,omitempty"`
	GuestLost     bool  `json:"guest-lost,omitempty"`
}

// MachineRecord is the machine's record as the stamp tells it.
func (s StampedRecord) MachineRecord() spec.MachineRecord {
	return spec.MachineRecord{
		Declaration: s.Declaration, Machine: s.Machine,
		Adopted: s.Adopted, PowerOverride: s.PowerOverride, GuestLost: s.GuestLost,
	}
}

// maxStampedRecord bounds the record in a stamp, in bytes; a machine with more
// user-data than fits is stamped without it, and says so.
const maxStampedRecord = 40 << 10

// stampedImage is what an instance was made from: the image of its stamp,
// which the declaration may name differently by now, or else fallback.
func stampedImage(record, fallback string) string {
	var stamped StampedRecord
	if json.Unmarshal([]byte(record), &stamped) != nil || stamped.Machine.Image == "" {
		return fallback
	}
	return stamped.Machine.Image
}

// Resolve fills in everything a driver needs to know of a machine.
func (c Config) Resolve(d Desired) containerbroker.Machine {
	m := d.Record.Machine
	stamped := StampedRecord{
		Name: d.instanceName(), Declaration: d.Record.Declaration, Machine: m,
		Adopted: d.Record.Adopted, PowerOverride: d.Record.PowerOverride, GuestLost: d.Record.GuestLost,
	}
	if d.Record.InstanceName != "" {
		stamped.MachineName = d.Name
	}
	if made := d.Status.Instance; made != nil && made.Image != "" {
		stamped.Machine.Image = made.Image // what it was made from, whatever is declared by now
	}
	guest := c.Guest
	guest.Hostname = d.instanceName()
	guest.SSHKeys = append(append([]string(nil), c.Guest.SSHKeys...), m.SSHKeys...)
	guest.UserData = m.CloudInit.UserData
	record := spec.Encode(stamped)
	if len(record) > maxStampedRecord {
		stamped.Machine.CloudInit, stamped.GuestLost = spec.CloudInit{}, true
		record = spec.Encode(stamped)
	}
	return containerbroker.Machine{
		Name:     d.instanceName(),
		Stamp:    containerbroker.Stamp{Namespace: c.Namespace, UID: d.UID, Record: string(record), Store: c.Lineage.Mark(d.Revision)},
		CPUs:     m.CPUs,
		Memory:   int64(m.Memory),
		RootDisk: int64(m.RootDisk),
		// What needs hostler's storage is started when that is attached, and
		// what shall not run is not started with the host either.
		Autostart:  m.WantsAutostart() && d.wantsRunning() && len(m.Storage) == 0,
		Privileged: m.Privileged,
		Nesting:    m.Nesting,
		Guest:      guest,
		KeepGuest:  d.Record.Adopted || d.Record.GuestLost,
		// Only who declares the machine may ask for its first boot again.
		RerunFirstBoot: m.CloudInit.OnChange == spec.OnChangeRerun,
	}
}
