package kvm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"hostler/containerbroker"
	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// The files of a seed.
const (
	fileMeta    = "meta-data"
	fileUser    = "user-data"
	fileVendor  = "vendor-data"
	fileNetwork = "network-config"
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

// seedAfter is the seed of an instance whose old one is given. The guest keeps
// its instance-id and its user-data, and so runs nothing of its first boot
// again; with rerun it gets the machine's user-data and an instance-id that it
// has not had before.
func seedAfter(old []byte, m containerbroker.Machine, uuid string, rerun bool) (image []byte, sum string, err error) {
	had := map[string][]byte{}
	for _, f := range isoRead(old) {
		had[f.name] = f.content
	}
	var meta struct {
		InstanceID string `json:"instance-id"`
	}
	if json.Unmarshal(had[fileMeta], &meta) != nil || had[fileUser] == nil {
		return nil, "", fault.New(fault.NeedsOperator, "its seed for cloud-init cannot be read; `--allow recreate` makes the machine anew")
	}
	m.Guest.InstanceID = meta.InstanceID
	if rerun {
		m.Guest.InstanceID = nextInstanceID(meta.InstanceID, uuid)
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

// nextInstanceID follows UUID, UUID-2, UUID-3: cloud-init knows again every
// instance-id that it had.
func nextInstanceID(last, uuid string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(last, uuid+"-"))
	if err != nil || n < 1 {
		n = 1
	}
	return fmt.Sprintf("%s-%d", uuid, n+1)
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
