package agent

import (
	"hostler/agent/spec"
	"hostler/internal/hostlock"
)

// facts returns the facts about the kernel that a provisioner needs. A
// provisioner in a separate unit cannot read them, due to ProcSubset=pid.
func facts() spec.HostFacts { return spec.HostFacts{Boot: hostlock.BootID()} }
