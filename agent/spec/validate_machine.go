package spec

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
)

// The bounds of a machine's resources.
const (
	maxCPUs     = 4096
	minMemory   = 16 * MiB
	minRootDisk = 64 * MiB
)

func (c *checker) machines() {
	nics := c.networkTable()
	ports, renamed := map[string]string{}, map[string]string{}
	users := storageUsers{writers: map[string]string{}, readers: map[string]string{}, filesystems: map[string]string{}}
	for _, name := range c.names("machines") {
		at := "machines." + name
		m := c.decl.Machines[name]
		c.machineName(at, name)
		if !c.places[at].is(mapping) && c.ok(at) {
			c.bad(at, "the machine is empty; add at least its type and image, indented deeper than its name or like {type: lxd, image: debian/12}")
			continue
		}
		if !c.ok(at) {
			continue
		}
		c.oneOf(at+".type", string(m.Type), TypeNames()...)
		c.image(at+".image", m)
		c.resources(at, m)
		c.nics(at, m, nics)
		c.attachments(at, m, users)
		c.userData(at+".cloud-init.user-data", m.CloudInit.UserData)
		if c.has(at + ".cloud-init.on-change") {
			c.oneOf(at+".cloud-init.on-change", m.CloudInit.OnChange, OnChangeIgnore, OnChangeRerun)
		}
		c.sshKeys(at+".ssh-keys", m.SSHKeys)
		c.publish(at, m, ports)
		c.checkRenamedFrom(at+".renamed-from", name, m.RenamedFrom, renamed)
		if info, known := m.Type.Info(); m.Privileged && known && !info.Container {
			c.bad(at+".privileged", "only containers can be privileged, and this machine's type is %s; remove the key", m.Type)
		}
	}
}

// checkRenamedFrom checks a machine's former name. renamed maps the document's
// former names to their paths.
func (c *checker) checkRenamedFrom(at, name, previous string, renamed map[string]string) {
	_, stays := declared(c, KindMachine, previous, c.decl.Machines, c.others.Declared.Machines)
	switch {
	case !c.ok(at) || !c.has(at):
	case !machineForm.MatchString(previous):
		c.bad(at, notName, quote(previous), mendName(previous))
	case previous == name:
		c.bad(at, "%s is the machine's present name; write its previous name, or remove the key", quote(previous))
	case stays:
		c.bad(at, "the machine %s is still declared (%s); remove it there, or remove this key", quote(previous), c.where("machines."+previous))
	default:
		c.once(renamed, c.others.Claims.renamed, previous, at, "the former name of")
	}
}

func (c *checker) resources(at string, m Machine) {
	value := reflect.ValueOf(m)
	for field := range value.Type().Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		f, here := machineSchema["Machine."+key], at+"."+key
		if f.number == "" || !c.has(here) || !c.ok(here) {
			continue
		}
		if n := value.FieldByIndex(field.Index).Int(); n < int64(f.least) || n > int64(f.most) {
			c.bad(here, "%d is not %s; use %d to %d, or leave the key out for the default", n, f.number, f.least, f.most)
		}
	}
	memory, disk := Size(minMemory), Size(minRootDisk)
	if info, known := m.Type.Info(); known {
		memory, disk = info.MinMemory, info.MinRootDisk
	}
	c.size(at+".memory", m.Memory, memory, "")
	c.size(at+".root-disk", m.RootDisk, disk, "")
}

// storageUsers holds the paths at which machines use storage, by the name of
// the volume or filesystem.
type storageUsers struct {
	// writers and readers hold the uses of volumes as block devices.
	writers, readers map[string]string
	filesystems      map[string]string
}

// attachments checks a machine's storage.
func (c *checker) attachments(at string, m Machine, users storageUsers) {
	paths, names, devices := map[string]string{}, map[string]string{}, map[string]string{}
	info, known := m.Type.Info()
	for i, a := range m.Storage {
		here := fmt.Sprintf("%s.storage[%d]", at, i)
		filesystem, volume := c.has(here+".filesystem"), c.has(here+".volume")
		switch {
		case !c.ok(here):
		case filesystem && volume:
			c.bad(here+".volume", "an entry attaches either a filesystem or a volume, not both; write two entries")
		case filesystem && known && !info.Container:
			c.bad(here+".filesystem", "this agent does not share filesystems with %s guests yet; attach a volume instead, as {volume: NAME}, and make the filesystem on it inside the guest", info.Hypervisor)
		case filesystem:
			reference(c, here+".filesystem", KindFilesystem, a.Filesystem, c.decl.Filesystems, c.others.Declared.Filesystems)
			c.mountPath(here+".path", a.Path)
			c.once(paths, nil, a.Path, here+".path", "a path in the storage of")
			c.once(names, nil, a.Filesystem, here+".filesystem", "a filesystem of")
			c.shared(at, here+".filesystem", a.Filesystem, users.filesystems)
		case volume:
			reference(c, here+".volume", KindVolume, a.Volume, c.decl.Volumes, c.others.Declared.Volumes)
			c.once(devices, nil, a.Volume, here+".volume", "a device of")
			if c.has(here + ".path") {
				c.bad(here+".path", "a volume is attached as a block device and has no path; attach a filesystem, or remove the path")
			}
			c.unformatted(here+".volume", a.Volume)
			c.writers(at, here, a, users)
		default:
			c.bad(here, "has neither \"filesystem: NAME\" nor \"volume: NAME\"; add either")
		}
	}
}

// unformatted refuses a volume as a block device when a filesystem is on it.
// Otherwise the machine could read another machine's files. It could also write
// to the mounted filesystem and e.g. plant setuid programs.
func (c *checker) unformatted(here, volume string) {
	if filesystem := cmp.Or(c.formatted[volume], claimantOf(c, c.others.Claims.volumes, volume)); filesystem != "" && c.ok(here) {
		c.bad(here, "%s is made on the volume %s (%s), and a volume cannot be both a block device and under a filesystem; attach the filesystem, or declare another volume for the machine",
			objectOf(filesystem), quote(volume), c.where(filesystem))
	}
}

// writers refuses a second machine on a volume that a machine may write to. Two
// writers would destroy the data, and a reader's device would change under it.
func (c *checker) writers(at, here string, a Attachment, users storageUsers) {
	here += ".volume"
	if !c.ok(here) {
		return
	}
	other := func(places map[string]string, claimed claimants[string]) string {
		if p := places[a.Volume]; p != "" && !strings.HasPrefix(p, at+".") {
			return p
		}
		return claimantOf(c, claimed, a.Volume)
	}
	writer, reader := other(users.writers, c.others.Claims.writers), other(users.readers, c.others.Claims.readers)
	switch {
	case writer != "":
		c.bad(here, "%s may write to the volume %s too (%s); write \"read-only: true\" for both",
			objectOf(writer), quote(a.Volume), c.where(writer))
	case reader != "" && !a.ReadOnly:
		c.bad(here, "%s has the volume %s read-only (%s), so no other machine may write to it; write \"read-only: true\" for both",
			objectOf(reader), quote(a.Volume), c.where(reader))
	case a.ReadOnly:
		users.readers[a.Volume] = here
	default:
		users.writers[a.Volume] = here
	}
}

// shared refuses a second machine on a filesystem that is not declared as
// shared.
func (c *checker) shared(at, here, name string, places map[string]string) {
	first := cmp.Or(places[name], claimantOf(c, c.others.Claims.filesystems, name))
	filesystem, known := declared(c, KindFilesystem, name, c.decl.Filesystems, c.others.Declared.Filesystems)
	switch {
	case !c.ok(here):
	case !known: // another document says whether it is shared
	case first == "":
		places[name] = here
	case strings.HasPrefix(first, at+"."), filesystem.Shared:
	case filesystem.Volume != "":
		c.bad(here, "%s has the filesystem %s already (%s); a filesystem on a volume belongs to one machine",
			objectOf(first), quote(name), c.where(first))
	default:
		c.bad(here, "%s has the filesystem %s already (%s); write \"shared: true\" in its declaration if both use it",
			objectOf(first), quote(name), c.where(first))
	}
}

// mountPath checks the mount point of a filesystem in the guest.
func (c *checker) mountPath(at, p string) {
	switch {
	case !c.ok(at):
	case !c.has(at):
		c.bad(at, "the path is missing; add the path in the guest, like \"path: /srv/www\"")
	case !path.IsAbs(p):
		c.bad(at, "%s is not an absolute path; begin it with /", quote(p))
	case path.Clean(p) != p:
		c.bad(at, "%s is not in its shortest form; write %s", quote(p), quote(path.Clean(p)))
	case p == "/":
		c.bad(at, "the root filesystem belongs to the machine; choose a path below it, like /srv/www")
	case under(p, "/proc", "/sys", "/dev"):
		c.bad(at, "%s belongs to the guest's kernel; choose another path, like /srv/www", quote(p))
	}
}

func under(p string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return p == f || strings.HasPrefix(p, f+"/") })
}
