package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/agent/state"
	"hostler/internal/fault"
)

// checkTypes refuses to make one hypervisor's machine another's: the guest that
// is there would run on beside the new one, with its name, its addresses and
// its storage. Every other field can change, some with a restart or a recreate.
func (w *world) checkTypes(doc document) error {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(doc.decl.Machines)) {
		k, t := w.machines[name], doc.decl.Machines[name].Type
		if k == nil || k.before == nil || k.life != state.Alive || k.was.Machine.Type == t {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("machine/%s is of type %s and cannot become %s; delete it first (`hostler delete machine/%s`) or give the new one another name",
			name, k.was.Machine.Type, t, name))
	}
	if len(wrong) > 0 {
		return fault.New(fault.Conflict, "cannot apply %s: %s", doc.name, strings.Join(wrong, "; "))
	}
	return nil
}
