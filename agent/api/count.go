package api

import (
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// count counts the machines that are not being removed.
func (w *declaredState) count() int {
	n := 0
	for _, k := range w.machines {
		if k.life == state.Alive {
			n++
		}
	}
	return n
}

// checkCount refuses more machines than the host's configuration allows;
// existing machines stay even if they exceed the limit.
func (w *declaredState) checkCount() error {
	most := w.most
	if most == 0 { // the record of an older agent
		most = spec.DefaultConfig().MaxMachines
	}
	if n := w.count(); n > most && n > w.began {
		return fault.New(fault.Invalid, "there would be %d machines, and this host takes at most %d; declare fewer, or raise max-machines in hostler.yaml", n, most)
	}
	return nil
}
