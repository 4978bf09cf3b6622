package agent

import (
	"hostler/agent/spec"
	"hostler/internal/hostlock"
)

// facts are what a provisioner needs to know of the kernel and does not see
// where it is a unit of its own (ProcSubset=pid).
func facts() spec.HostFacts { return spec.HostFacts{Boot: hostlock.BootID()} }
