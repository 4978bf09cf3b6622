package agent

import (
	"hostler/agent/spec"
	"hostler/internal/hostlock"
)

// facts returns the facts about the kernel that a provisioner needs but cannot
// see in a unit of its own (ProcSubset=pid).
func facts() spec.HostFacts { return spec.HostFacts{Boot: hostlock.BootID()} }
