package kvm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// The names of the files in a seed.
const (
	fileMeta    = "meta-data"
	fileUser    = "user-data"
	fileVendor  = "vendor-data"
	fileNetwork = "network-config"
)

// seedOf returns cloud-init's seed (NoCloud) as an ISO image, and the image's
// digest. The seed stays attached as long as the instance exists, because
// without it cloud-init assumes a new instance and repeats the first boot.
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
		user = []byte(cloudinit.NoUserData)
	}
	files := []isoFile{{fileMeta, meta}, {fileUser, user}, {fileVendor, []byte(cloudinit.VendorData)}}
	network, err := cloudinit.NetworkConfig(seedInterfaces(m, uuid))
	if err != nil {
		return nil, "", err
	}
	if len(network) > 0 {
		files = append(files, isoFile{fileNetwork, network})
	}
	image = isoImage("cidata", files)
	hash := sha256.Sum256(image)
	return image, hex.EncodeToString(hash[:]), nil
}

// seedAfter returns the seed that replaces an instance's old seed. It keeps the
// instance-id and user-data, so that cloud-init does not repeat the first boot.
// With rerun, it has the machine's user-data and a new instance-id instead.
func seedAfter(old []byte, m containerbroker.Machine, uuid string, rerun bool) (image []byte, sum string, err error) {
	had := map[string][]byte{}
	for _, f := range isoRead(old) {
		had[f.name] = f.content
	}
	var meta struct {
		InstanceID string `json:"instance-id"`
	}
	if json.Unmarshal(had[fileMeta], &meta) != nil || had[fileUser] == nil {
		return nil, "", fault.New(fault.NeedsOperator, "its seed for cloud-init cannot be read; `--allow recreate` makes the instance again")
	}
	m.Guest.InstanceID = meta.InstanceID
	if rerun {
		m.Guest.InstanceID = cloudinit.NextInstanceID(meta.InstanceID, uuid)
		return seedOf(m, uuid)
	}
	image, _, err = seedOf(m, uuid)
	if err != nil {
		return nil, "", err
	}
	files := isoRead(image)
	for i := range files {
		if files[i].name == fileUser {
			files[i].content = had[fileUser]
		}
	}
	image = isoImage("cidata", files)
	hash := sha256.Sum256(image)
	return image, hex.EncodeToString(hash[:]), nil
}

// seedTextToCompare returns the user-data in the domain's seed if it may hold a
// password of a proxy, which the digest in the note does not show. It returns
// "" if there is no such user-data, or if the seed is gone.
func seedTextToCompare(c *conn, def definition) (string, error) {
	n, seed := def.note, fileOf(def.domain.Devices.Disks, seedTarget)
	if n == nil || n.UserData == "" || n.PlainProxies || n.Pool == "" || n.Making || seed == "" {
		return "", nil
	}
	where, err := c.openPool(n.Pool)
	if err == nil {
		var content []byte
		content, err = where.read(filepath.Base(seed))
		for _, f := range isoRead(content) {
			if f.name == fileUser && err == nil {
				return string(f.content), nil
			}
		}
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.NeedsOperator) {
		err = nil // without a seed, the digest alone is compared
	}
	return "", err
}

// seedInterfaces describes the machine's interfaces to cloud-init, which
// matches them by MAC address. The guest's kernel chooses their names before
// cloud-init does.
func seedInterfaces(m containerbroker.Machine, uuid string) []cloudinit.Interface {
	var all []cloudinit.Interface
	for _, n := range m.NICs {
		all = append(all, cloudinit.Interface{
			Name: n.Name, MAC: nicMAC(n, uuid), MTU: n.MTU, Addresses: n.Addresses,
			Static: n.Static, AcceptRA: n.AcceptRA, Gateways: n.Gateways, Nameservers: n.Nameservers,
		})
	}
	return all
}
