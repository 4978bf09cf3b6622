package lxc

import (
	"os"
	"strconv"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
)

// seedDir is where cloud-init looks for its data in the guest's own files.
const seedDir = "var/lib/cloud/seed/nocloud"

// seedFile is a file of cloud-init's seed.
type seedFile struct {
	name, text string
	mode       os.FileMode
}

// seedOf returns the seed of an instance. dsmode local makes cloud-init apply it
// before the network is up.
func seedOf(m containerbroker.Machine, n *note) []seedFile {
	hostname := m.Guest.Hostname
	if hostname == "" {
		hostname = m.Name
	}
	userData := n.Told.UserData
	if userData == "" {
		userData = cloudinit.NoUserData
	}
	files := []seedFile{
		{"meta-data", "instance-id: " + strconv.Quote(n.InstanceID) + "\nlocal-hostname: " + strconv.Quote(hostname) + "\ndsmode: local\n", 0o644},
		{"user-data", userData, 0o600},
		{"vendor-data", cloudinit.VendorData, 0o644},
	}
	if n.Told.NetworkConfig != "" {
		files = append(files, seedFile{"network-config", n.Told.NetworkConfig, 0o644})
	}
	return files
}

// furnish writes the hostname and the seed into a root filesystem. The content
// of the filesystem is hostile: no path leads out of it.
func (d *Driver) furnish(root string, privileged bool, seed []seedFile, hostname string) error {
	w, err := d.writeTo(root, privileged)
	if err != nil {
		return err
	}
	defer func() { _ = w.root.Close() }()
	if w.folder("etc") {
		w.file("etc/hostname", hostname+"\n", 0o644)
	}
	w.seed(seed)
	return w.err
}

// reseed writes cloud-init's seed into the root filesystem of an instance, which
// reads it at its next start.
func (d *Driver) reseed(root string, privileged bool, seed []seedFile) error {
	w, err := d.writeTo(root, privileged)
	if err != nil {
		return err
	}
	defer func() { _ = w.root.Close() }()
	w.seed(seed)
	return w.err
}
