package hostreport

import (
	"os"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/paths"
)

// controllersFile lists the controllers of cgroup v2. It exists only where
// cgroup v2 alone is mounted. Elsewhere controllers belong to v1 hierarchies.
const controllersFile = "/sys/fs/cgroup/cgroup.controllers"

// cgroupControllers warns about containers whose declared limits need a
// controller of cgroup v2 that the kernel does not offer, e.g. memory on some
// boards. LXD and Incus ignore such limits without an error.
func cgroupControllers(p paths.Paths, objects []state.Object) []client.Check {
	data, err := os.ReadFile(p.Host(controllersFile))
	if err != nil {
		return nil
	}
	offered := strings.Fields(string(data))
	needs := map[string][]string{} // machines by missing controller
	for _, o := range objects {
		var r spec.MachineRecord
		if o.Kind != spec.KindMachine || o.Decode(&r, nil) != nil {
			continue
		}
		if info, known := r.Machine.Type.Info(); !known || !info.Container {
			continue
		}
		if r.Machine.Memory != 0 {
			needs["memory"] = append(needs["memory"], o.Name)
		}
		if r.Machine.CPUs != 0 {
			needs["cpu"] = append(needs["cpu"], o.Name)
			needs["cpuset"] = append(needs["cpuset"], o.Name)
		}
	}
	var checks []client.Check
	for _, controller := range []string{"memory", "cpu", "cpuset"} {
		if len(needs[controller]) == 0 || slices.Contains(offered, controller) {
			continue
		}
		checks = append(checks, client.Check{
			Name: "cgroup " + controller, Result: "warning",
			Message: "the kernel offers no " + controller + " controller, so the limits of these machines cannot be enforced: " + strings.Join(needs[controller], ", "),
			Mend:    "boot without the kernel parameter cgroup_disable=" + controller + "; some boards need cgroup_enable=" + controller,
		})
	}
	return checks
}
