package provisioner

import (
	"hostler/agent/spec"
	"hostler/containerbroker"
)

// properties returns the plain settings of a machine.
func (d *Desired) properties() containerbroker.Properties {
	m := d.Record.Machine
	return containerbroker.Properties{
		CPUs:     m.CPUs,
		Memory:   int64(m.Memory),
		RootDisk: int64(m.RootDisk),
		// A machine with storage must not start with the host, because the agent
		// starts it after it has attached the storage. A stopped machine does
		// not start with the host either.
		Autostart:  m.WantsAutostart() && d.wantsRunning() && len(m.Storage) == 0,
		Privileged: m.Privileged,
		Nesting:    m.Nesting,
	}
}

// Declared returns the machine that matches an instance's properties. A frozen
// instance is declared as running, because a stop would lose its memory.
func Declared(i containerbroker.Instance) spec.Machine {
	running := i.Status == containerbroker.StatusRunning || i.Status == containerbroker.StatusFrozen
	p := i.Properties
	return spec.Machine{
		CPUs: p.CPUs, Memory: spec.Size(p.Memory), RootDisk: spec.Size(p.RootDisk),
		Running: &running, Autostart: &p.Autostart, Privileged: p.Privileged, Nesting: p.Nesting,
	}
}
