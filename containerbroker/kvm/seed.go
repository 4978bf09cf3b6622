package kvm

import (
	"crypto/sha256"
	"encoding/hex"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
)

// seedOf returns the media by which cloud-init is told about its instance
// (NoCloud), and a digest of it. It stays as long as the instance: cloud-init
// that finds it gone takes its disk for that of another instance, and makes
// all of its first boot's settings anew.
func seedOf(m containerbroker.Machine, uuid string) (image []byte, sum string, err error) {
	guest := m.Guest
	if guest.InstanceID == "" {
		guest.InstanceID = uuid
	}
	if guest.Hostname == "" {
		guest.Hostname = m.Name
	}
	meta, err := cloudinit.MetaData(guest)
	if err != nil {
		return nil, "", err
	}
	user, err := cloudinit.UserData(m.Guest)
	if err != nil {
		return nil, "", err
	}
	if len(user) == 0 {
		user = []byte("#cloud-config\n{}\n") // without one it is no seed
	}
	files := []isoFile{{"meta-data", meta}, {"user-data", user}}
	network, err := cloudinit.NetworkConfig(seedInterfaces(m, uuid))
	if err != nil {
		return nil, "", err
	}
	if len(network) > 0 {
		files = append(files, isoFile{"network-config", network})
	}
	image = isoImage("cidata", files)
	hash := sha256.Sum256(image)
	return image, hex.EncodeToString(hash[:]), nil
}

// seedInterfaces tells the guest its interfaces by their addresses: their
// names are for it to give.
func seedInterfaces(m containerbroker.Machine, uuid string) []cloudinit.Interface {
	var all []cloudinit.Interface
	for _, n := range m.NICs {
		all = append(all, cloudinit.Interface{
			Name: n.Name, MAC: nicMAC(n, uuid), MTU: n.MTU, Addresses: n.Addresses,
			Static: n.Static, Gateways: n.Gateways, Nameservers: n.Nameservers,
		})
	}
	return all
}
