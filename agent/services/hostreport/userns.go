package hostreport

import (
	"os"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/paths"
)

// userNamespacesParameter is AppArmor's kernel parameter, which Ubuntu sets to
// 1. A user namespace that an unprivileged process makes then has no
// capabilities, unless the process's profile permits user namespaces.
const userNamespacesParameter = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"

// userNamespaces checks whether AppArmor lets unprivileged machines run
// containers of their own. These containers are user namespaces that an
// unprivileged process of the host makes. The check is absent if AppArmor does
// not restrict them. The snap of LXD switches the restriction off by itself,
// see https://github.com/canonical/lxd-pkg-snap/pull/327.
func userNamespaces(p paths.Paths, objects []state.Object) []client.Check {
	data, err := os.ReadFile(p.Host(userNamespacesParameter))
	if err != nil || strings.TrimSpace(string(data)) == "0" {
		return nil
	}
	var affected []string
	for _, o := range objects {
		var r spec.MachineRecord
		if o.Kind != spec.KindMachine || o.Decode(&r, nil) != nil || !r.Machine.Nesting || r.Machine.Privileged {
			continue
		}
		if info, known := r.Machine.Type.Info(); known && info.Container {
			affected = append(affected, o.Name)
		}
	}
	const name, mend = "user namespaces", "lift the restriction for the whole host with `kernel.apparmor_restrict_unprivileged_userns = 0` in a file of /etc/sysctl.d and `sysctl --system`, or use `type: kvm`"
	if len(affected) == 0 {
		return []client.Check{{Name: name, Result: "ok", Message: "AppArmor restricts user namespaces: containers within a machine with `nesting` may fail"}}
	}
	return []client.Check{{Name: name, Result: "warning", Message: "AppArmor restricts user namespaces, which the containers within these machines need: " + strings.Join(affected, ", "), Mend: mend}}
}
