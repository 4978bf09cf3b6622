package kvm

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// imageOf returns the digest of the image that a file holds. ok is false if the
// file is no image of this namespace.
func imageOf(namespace, file string) (digest string, ok bool) {
	digest, ours := strings.CutPrefix(strings.TrimSuffix(filepath.Base(file), ".qcow2"), "hostler-image-"+namespace+"-")
	return digest, ours && digestPattern.MatchString(digest) && filepath.Base(file) == imageName(namespace, digest)
}

// describe returns the description of a volume, with the path of its backing
// file.
func (c *conn) describe(v libvirt.StorageVol) (def libvirtxml.StorageVolume, err error) {
	text, err := value(c, "read volume "+clean(v.Name, 256), func(l *libvirt.Libvirt) (string, error) { return l.StorageVolGetXMLDesc(v, 0) })
	if err != nil {
		return def, err
	}
	if err := def.Unmarshal(text); err != nil {
		return def, fault.New(fault.Transient, "cannot read volume %s: %v", clean(v.Name, 256), err)
	}
	return def, nil
}

// elsewhere rescans the other pools and returns their volumes. It leaves out pools
// that are not active, and those that are not folders, because their volumes have no
// backing files. unsure names the pools that could not be read.
func (p *pool) elsewhere() (all []libvirt.StorageVol, unsure error) {
	pools, err := value(p.conn, "list the storage pools", func(l *libvirt.Libvirt) ([]libvirt.StoragePool, error) {
		found, _, err := l.ConnectListAllStoragePools(1, libvirt.ConnectListStoragePoolsActive)
		return found, err
	})
	if err != nil {
		return nil, err
	}
	for _, other := range pools {
		if other.UUID == p.pool.UUID {
			continue
		}
		where, err := p.conn.openPool(other.Name)
		if fault.Is(err, fault.NeedsOperator) {
			continue
		}
		var found []libvirt.StorageVol
		if err == nil {
			found, err = where.volumes(true)
		}
		all, unsure = append(all, found...), errors.Join(unsure, err)
	}
	return all, unsure
}

// usersOf returns the users of each image, by the image's digest. Users are
// instances with a stamp, and volumes of released or foreign domains whose
// backing file is the image. Such a volume is listed by the name of its domain,
// or by its file name if the domain is not known. unsure names the volumes that
// could not be read.
func (d *Driver) usersOf(where *pool, volumes []libvirt.StorageVol, instances []containerbroker.Instance) (users map[string][]string, unsure, err error) {
	users = map[string][]string{}
	stamped := map[string]bool{}
	for _, i := range instances {
		if i.ImageID != "" {
			stamped[i.Name] = true
			users[i.ImageID] = append(users[i.ImageID], i.Name)
		}
	}
	domains, err := value(where.conn, "list the domains", func(l *libvirt.Libvirt) ([]libvirt.Domain, error) {
		found, _, err := l.ConnectListAllDomains(1, 0)
		return found, err
	})
	if err != nil {
		return nil, nil, err
	}
	for _, v := range volumes {
		if _, image := imageOf(d.opts.Namespace, v.Name); image {
			continue
		}
		user := v.Name
		if at := slices.IndexFunc(domains, func(dom libvirt.Domain) bool { return isFileOf(v.Name, uuidText(dom.UUID)) }); at >= 0 {
			user = domains[at].Name
			if stamped[user] {
				continue
			}
		}
		def, err := where.conn.describe(v)
		if fault.Is(err, fault.NotFound) {
			continue // the volume was removed meanwhile
		}
		if err != nil {
			unsure = errors.Join(unsure, err)
			continue
		}
		if def.BackingStore == nil || filepath.Dir(filepath.Clean(def.BackingStore.Path)) != where.dir {
			continue
		}
		if id, ok := imageOf(d.opts.Namespace, def.BackingStore.Path); ok && !slices.Contains(users[id], user) {
			users[id] = append(users[id], user)
		}
	}
	return users, unsure, nil
}

// recovered returns a new note for a domain without a stamp. If hostler made
// the domain and released it, the note holds the image, pool and size of the
// root disk. Otherwise the note is empty.
func (d *Driver) recovered(c *conn, def definition) (*note, error) {
	n := &note{}
	file := fileOf(def.domain.Devices.Disks, rootTarget)
	if filepath.Base(file) != rootName(def.domain.Name, def.domain.UUID) {
		return n, nil
	}
	v, err := value(c, "find volume "+clean(file, 512), func(l *libvirt.Libvirt) (libvirt.StorageVol, error) { return l.StorageVolLookupByPath(file) })
	if fault.Is(err, fault.NotFound) {
		return n, nil
	}
	if err != nil {
		return nil, err
	}
	disk, err := c.describe(v)
	if err != nil {
		return nil, err
	}
	n.Pool = v.Pool
	if disk.Capacity != nil {
		n.RootDisk = bytesOf(uint(disk.Capacity.Value), disk.Capacity.Unit)
	}
	if base := disk.BackingStore; base != nil && filepath.Dir(base.Path) == filepath.Dir(file) {
		if id, ok := imageOf(d.opts.Namespace, base.Path); ok {
			n.Image = id
		}
	}
	return n, nil
}

// uuidText writes a UUID as libvirt does.
func uuidText(id libvirt.UUID) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
