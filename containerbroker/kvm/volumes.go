package kvm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/internal/fault"
)

// pool is a storage pool in a folder. The driver makes and removes all files of
// instances through libvirt, so the driver's user needs no rights on these
// files.
type pool struct {
	conn *conn
	pool libvirt.StoragePool
	dir  string
	// shared means that the folder is a server's, which may not let libvirt give
	// files to users.
	shared bool
}

// fileMode is the mode of all files in the pool. libvirt gives a file to QEMU's
// user while a guest has it open.
const fileMode = "0600"

func (c *conn) openPool(name string) (*pool, error) {
	p, err := value(c, "find storage pool "+name, func(l *libvirt.Libvirt) (libvirt.StoragePool, error) { return l.StoragePoolLookupByName(name) })
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NeedsOperator, "libvirt has no storage pool %q", name)
	}
	if err != nil {
		return nil, err
	}
	text, err := value(c, "read storage pool "+name, func(l *libvirt.Libvirt) (string, error) { return l.StoragePoolGetXMLDesc(p, 0) })
	if err != nil {
		return nil, err
	}
	var def libvirtxml.StoragePool
	if err := def.Unmarshal(text); err != nil {
		return nil, fault.New(fault.Transient, "cannot read storage pool %q: %v", name, err)
	}
	if def.Type != "dir" && def.Type != "fs" && def.Type != "netfs" || def.Target == nil || !filepath.IsAbs(def.Target.Path) {
		return nil, fault.New(fault.NeedsOperator, "storage pool %q is not a folder; set types.kvm.pool to a pool of type dir", name)
	}
	return &pool{conn: c, pool: p, dir: filepath.Clean(def.Target.Path), shared: def.Type == "netfs"}, nil
}

// path returns the path of a file in the pool.
func (p *pool) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pool) lookup(name string) (libvirt.StorageVol, error) {
	return value(p.conn, "find volume "+name, func(l *libvirt.Libvirt) (libvirt.StorageVol, error) {
		return l.StorageVolLookupByName(p.pool, name)
	})
}

func permissions() *libvirtxml.StorageVolumeTargetPermissions {
	return &libvirtxml.StorageVolumeTargetPermissions{Mode: fileMode}
}

// overlay makes the root disk of an instance, with an image as its backing
// file. size is the disk's size and least the image's, in bytes. An existing
// file comes from an interrupted attempt and is replaced.
func (p *pool) overlay(name, image string, size, least int64) error {
	if least > size {
		return fault.New(fault.Invalid, "its root disk of %d bytes is smaller than its image, which has %d", size, least)
	}
	_, err := p.create(libvirtxml.StorageVolume{
		Name: name, Capacity: &libvirtxml.StorageVolumeSize{Value: uint64(size), Unit: "bytes"},
		Allocation:   &libvirtxml.StorageVolumeSize{Value: 0},
		Target:       &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"}, Permissions: permissions()},
		BackingStore: &libvirtxml.StorageVolumeBackingStore{Path: p.path(image), Format: &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"}},
	})
	return err
}

// capacity returns a volume's size as a guest sees it, in bytes.
func (p *pool) capacity(v libvirt.StorageVol) (int64, error) {
	size := int64(0)
	err := p.conn.Call("read volume "+v.Name, func(l *libvirt.Libvirt) error {
		_, capacity, _, err := l.StorageVolGetInfo(v)
		size = int64(capacity)
		return err
	})
	return size, err
}

func (p *pool) create(v libvirtxml.StorageVolume) (libvirt.StorageVol, error) {
	text, err := v.Marshal()
	if err != nil {
		return libvirt.StorageVol{}, fault.New(fault.Invalid, "cannot describe volume %s: %v", v.Name, err)
	}
	var made libvirt.StorageVol
	for range 2 {
		made, err = value(p.conn, "make volume "+v.Name, func(l *libvirt.Libvirt) (libvirt.StorageVol, error) {
			return l.StorageVolCreateXML(p.pool, text, 0)
		})
		if !fault.Is(err, fault.Conflict) {
			break
		}
		if err := p.remove(v.Name); err != nil {
			return made, err
		}
	}
	return made, err
}

// write makes a raw volume with the given content, which survives a power cut. It
// replaces an existing volume. libvirt does not sync an upload, so the file belongs
// to this process's user, who syncs it, until a guest is started with it. The
// server of a shared folder syncs the file by itself.
func (p *pool) write(name string, content []byte) error {
	rights := permissions()
	if !p.shared {
		rights.Owner = strconv.Itoa(os.Getuid())
	}
	v, err := p.create(libvirtxml.StorageVolume{
		Name: name, Capacity: &libvirtxml.StorageVolumeSize{Value: uint64(len(content)), Unit: "bytes"},
		Target: &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}, Permissions: rights},
	})
	if err != nil {
		return err
	}
	err = p.conn.Call("fill volume "+name, func(l *libvirt.Libvirt) error {
		err := l.StorageVolUpload(v, bytes.NewReader(content), 0, uint64(len(content)), 0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	if err != nil || p.shared {
		return err
	}
	err = syncFile(p.path(name))
	if errors.Is(err, fs.ErrPermission) {
		return nil // the administrator has closed the folder to other users
	}
	return fault.Explain(err, "cannot sync volume %s", name)
}

// maxRead is the size, in bytes, of the largest volume that read() reads.
const maxRead = 16 << 20

// read returns the content of a volume.
func (p *pool) read(name string) ([]byte, error) {
	v, err := p.lookup(name)
	if err != nil {
		return nil, err
	}
	size, err := p.capacity(v)
	if err != nil {
		return nil, err
	}
	if size > maxRead {
		return nil, fault.New(fault.NeedsOperator, "volume %s is too large to be a seed for cloud-init", name)
	}
	for tries := 3; ; tries-- {
		content, err := p.download(v, size)
		if err == nil || tries == 1 || !fault.Is(err, fault.Transient) || p.conn.ctx.Err() != nil {
			return content, err
		}
	}
}

// streamTime bounds the transfer of maxRead bytes from a local disk.
const streamTime = 10 * time.Second

// download reads a volume through a connection of its own. libvirt can send the
// first data before its answer to the request, which the library takes for that
// answer: it then returns too little, or waits for ever.
func (p *pool) download(v libvirt.StorageVol, size int64) ([]byte, error) {
	c, err := p.conn.another()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var content bytes.Buffer
	err = c.CallWithin(min(streamTime, c.limit), "read volume "+v.Name, func(l *libvirt.Libvirt) error {
		content.Reset()
		return l.StorageVolDownload(v, &content, 0, uint64(size), 0)
	})
	if err == nil && int64(content.Len()) != size {
		err = fault.New(fault.Transient, "cannot read volume %s: libvirt sent %d of %d bytes", v.Name, content.Len(), size)
	}
	if err != nil {
		return nil, err
	}
	return content.Bytes(), nil
}

// remove deletes a volume. An absent volume is success.
func (p *pool) remove(name string) error {
	v, err := p.lookup(name)
	if err == nil {
		err = p.conn.Call("delete volume "+name, func(l *libvirt.Libvirt) error { return l.StorageVolDelete(v, 0) })
	}
	if err == nil || fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// volumes lists the volumes of the pool. With refresh, libvirt rescans the
// folder first.
func (p *pool) volumes(refresh bool) ([]libvirt.StorageVol, error) {
	if refresh {
		err := p.conn.Call("refresh storage pool "+p.pool.Name, func(l *libvirt.Libvirt) error { return l.StoragePoolRefresh(p.pool, 0) })
		if err != nil {
			return nil, err
		}
	}
	return value(p.conn, "list storage pool "+p.pool.Name, func(l *libvirt.Libvirt) ([]libvirt.StorageVol, error) {
		found, _, err := l.StoragePoolListAllVolumes(p.pool, 1, 0)
		return found, err
	})
}

// filesOf returns the common prefix of an instance's file names.
func filesOf(name, uuid string) string { return fmt.Sprintf("hostler-%s-%s.", name, uuid) }

func rootName(name, uuid string) string { return filesOf(name, uuid) + "root.qcow2" }

func logName(name, uuid string) string { return filesOf(name, uuid) + "console.log" }

// seedName includes a digest of the content, so that seeds of different content
// have different names.
func seedName(name, uuid, content string) string {
	return filesOf(name, uuid) + "seed-" + content[:12] + ".iso"
}

// isFileOf reports whether a file belongs to the instance with the UUID. It
// does not compare the instance's name in the file name, because the instance
// may have been renamed since.
func isFileOf(file, uuid string) bool {
	return strings.HasPrefix(file, "hostler-") && strings.Contains(file, "-"+uuid+".")
}

// removeFiles deletes the files of an instance, except those in keep.
func (p *pool) removeFiles(uuid string, keep ...string) error {
	all, err := p.volumes(true)
	if err != nil {
		return err
	}
	var failed error
	for _, v := range all {
		file, stays := v.Name, false
		for _, k := range keep {
			stays = stays || file == k
		}
		if isFileOf(file, uuid) && !stays {
			failed = errors.Join(failed, p.remove(file))
		}
	}
	return failed
}
