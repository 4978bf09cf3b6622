// Package cloudinit builds the data that cloud-init reads inside a guest
// (user-data, meta-data, network-config) from typed fields. What a person
// wrote goes in as a MIME part of its own, never by pasting strings.
package cloudinit

// Guest is what a guest is to be told. The zero value tells it nothing.
type Guest struct {
	Hostname string
	// InstanceID is cloud-init's instance-id: a new one makes cloud-init run
	// its once-per-instance modules again.
	InstanceID string
	// SSHKeys are authorized_keys lines for the image's default user.
	SSHKeys []string
	// UserData is the person's own user-data, verbatim (#cloud-config,
	// a script, or MIME).
	UserData                       string
	HTTPProxy, HTTPSProxy, NoProxy string
	AptMirror, AptProxy            string
}

// VendorData is what cloud-init reads as vendor-data, below all that the user
// says: a changed network-config is applied at every boot. By itself
// cloud-init applies it in the first boot of an instance-id only.
const VendorData = "#cloud-config\n" + `{"updates": {"network": {"when": ["boot-new-instance", "boot"]}}}` + "\n"
