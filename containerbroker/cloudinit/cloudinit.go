// Package cloudinit builds the data that cloud-init reads inside a guest
// (user-data, meta-data, network-config) from typed fields. The user's own
// user-data is kept as a separate MIME part and is never mixed with generated
// text.
package cloudinit

import (
	"strconv"
	"strings"
)

// Input is the input of cloud-init. The zero value produces no data.
type Input struct {
	Hostname string
	// InstanceID is cloud-init's instance-id. A new id makes cloud-init run its
	// once-per-instance modules again.
	InstanceID string
	// SSHKeys are authorized_keys lines for the image's default user.
	SSHKeys []string
	// UserData is the user's own user-data, unchanged. It is a #cloud-config, a
	// script or another kind that cloud-init knows, or a MIME message.
	UserData                       string
	HTTPProxy, HTTPSProxy, NoProxy string
	AptMirror, AptProxy            string
}

// NoUserData is user-data without an effect. cloud-init ignores a seed that has
// no user-data.
const NoUserData = "#cloud-config\n{}\n"

// VendorData is cloud-init's vendor-data, which user-data can override. It
// makes cloud-init apply network-config at every boot instead of only in the
// first boot of an instance-id.
const VendorData = "#cloud-config\n" + `{"updates": {"network": {"when": ["boot-new-instance", "boot"]}}}` + "\n"

// NextInstanceID returns the instance-id that follows last, e.g. UID-3 after
// UID-2. It never repeats an id, because cloud-init remembers all of them.
func NextInstanceID(last, uid string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(last, uid+"-"))
	if err != nil || n < 1 {
		n = 1
	}
	return uid + "-" + strconv.Itoa(n+1)
}
