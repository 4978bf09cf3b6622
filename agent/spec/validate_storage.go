package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"hostler/internal/mountoption"
	"hostler/internal/near"
)

// minVolume is the minimum size of a volume or filesystem, because no
// filesystem fits on less.
const minVolume = MiB

// The accepted values of storage fields.
var (
	volumeProviders     = []string{"loop"}
	filesystemProviders = []string{"tmpfs", "rootfs"}
	filesystemTypes     = []string{"ext4", "xfs", "btrfs"}
	allocations         = []string{AllocationFull, AllocationSparse}
)

// leastOn maps each type of filesystem to the smallest volume on which
// mkfs.ext4, mkfs.xfs or mkfs.btrfs can make it.
var leastOn = map[string]Size{"ext4": 2 * MiB, "xfs": 300 * MiB, "btrfs": 110 * MiB}

// LeastOn returns the minimum size of a volume for a type of filesystem, or 0
// if the type is not known.
func LeastOn(filesystem string) Size { return leastOn[filesystem] }

var mountOptionForm = regexp.MustCompile(`^[A-Za-z0-9_.:=/@%+-]+$`)

func (c *checker) volumes() {
	for _, name := range c.names("volumes") {
		path := "volumes." + name
		v := c.decl.Volumes[name]
		c.name(path, name)
		if !c.ok(path) {
			continue
		}
		if slices.Contains(filesystemProviders, v.Provider) {
			c.bad(path+".provider", "%s provides filesystems, not volumes; declare it under \"filesystems\"", quote(v.Provider))
		}
		c.oneOf(path+".provider", v.Provider, volumeProviders...)
		c.size(path+".size", v.Size, minVolume, "the size is missing; add it, like \"size: 1GiB\"")
		if c.has(path + ".allocation") {
			c.oneOf(path+".allocation", v.Allocation, allocations...)
		}
	}
}

// size checks a size against its minimum. missing is the message for an absent
// size. If missing is empty, the size is optional.
func (c *checker) size(path string, size, least Size, missing string) {
	switch {
	case !c.ok(path):
	case !c.has(path):
		if missing != "" {
			c.bad(path, "%s", missing)
		}
	case size < least:
		c.bad(path, "%s is too small; it must be at least %s", shorten(c.places[path].value), least)
	}
}

func (c *checker) filesystems() {
	c.formatted = map[string]string{}
	for _, name := range c.names("filesystems") {
		path := "filesystems." + name
		f := c.decl.Filesystems[name]
		c.name(path, name)
		if !c.ok(path) {
			continue
		}
		volume, provider := c.has(path+".volume"), c.has(path+".provider")
		switch {
		case volume && provider:
			c.bad(path+".provider", "a filesystem has either a volume or a provider, not both; remove either key")
		case volume:
			c.onVolume(path, f)
		case provider:
			c.provided(path, f)
		default:
			c.bad(path, "has neither \"volume: NAME\" (a filesystem made on a volume) nor \"provider: tmpfs\" or \"rootfs\"; add either")
		}
		c.mountOptions(path, f)
	}
}

func (c *checker) onVolume(path string, f Filesystem) {
	reference(c, path+".volume", KindVolume, f.Volume, c.decl.Volumes, c.others.Declared.Volumes)
	claims := c.others.Claims
	c.once(c.formatted, claims.volumes, f.Volume, path+".volume", "used by")
	if raw := cmp.Or(claimantOf(c, claims.writers, f.Volume), claimantOf(c, claims.readers, f.Volume)); raw != "" && c.ok(path+".volume") {
		c.bad(path+".volume", "%s has the volume %s as a block device (%s), and a volume cannot be both a block device and under a filesystem; declare another volume for the filesystem",
			objectOf(raw), quote(f.Volume), c.where(raw))
	}
	if c.has(path + ".type") {
		c.oneOf(path+".type", f.Type, filesystemTypes...)
	}
	c.room(path, f)
	if c.has(path + ".size") {
		c.bad(path+".size", "a filesystem on a volume is as large as the volume; remove the size, or set it on the volume")
	}
	if f.Shared {
		c.bad(path+".shared", "a filesystem on a volume belongs to one machine; share a filesystem of the provider rootfs, or remove the key")
	}
	if f.Retain {
		c.bad(path+".retain", "the data of a filesystem on a volume is kept with the volume; write \"retain: true\" there")
	}
}

// room checks that the volume is large enough for the type of the filesystem.
func (c *checker) room(path string, f Filesystem) {
	kind := cmp.Or(f.Type, filesystemTypes[0])
	_, own := c.decl.Volumes[f.Volume]
	v, _ := declared(c, KindVolume, f.Volume, c.decl.Volumes, c.others.Declared.Volumes)
	if v.Size == 0 || own && !c.ok("volumes."+f.Volume+".size") || v.Size >= leastOn[kind] {
		return
	}
	c.bad(path+".volume", "%s needs a volume of at least %s, and %s has %s; make the volume larger or choose another type",
		kind, leastOn[kind], quote(f.Volume), v.Size)
}

func (c *checker) provided(path string, f Filesystem) {
	if slices.Contains(volumeProviders, f.Provider) {
		c.bad(path+".provider", "%s provides volumes, not filesystems; declare a volume and write \"volume: NAME\" here", quote(f.Provider))
	}
	if c.oneOf(path+".provider", f.Provider, filesystemProviders...) {
		c.size(path+".size", f.Size, minVolume, fmt.Sprintf("the size is missing; %s needs it, like \"size: 64MiB\"", f.Provider))
	}
	if c.has(path + ".type") {
		c.bad(path+".type", "only a filesystem on a volume has a type; remove it")
	}
	if f.Wipe {
		c.bad(path+".wipe", "only a filesystem on a volume can find foreign data; remove the key")
	}
	if f.Retain && f.Provider == "tmpfs" {
		c.bad(path+".retain", "data in memory cannot be kept; use the provider rootfs, or remove the key")
	}
}

func (c *checker) mountOptions(path string, f Filesystem) {
	seen := map[string]string{}
	for i, o := range f.MountOptions {
		at := fmt.Sprintf("%s.mount-options[%d]", path, i)
		name, _, _ := strings.Cut(o, "=")
		switch {
		case !c.ok(at):
		case strings.Contains(o, ","):
			c.bad(at, "%s contains several options; write each as a separate entry, like [noatime, nodev]", quote(o))
		case !mountOptionForm.MatchString(o):
			c.bad(at, "%s is not a mount option; write an option like noatime", quote(o))
		case mountoption.ForPrograms(o):
			c.bad(at, "%s is for programs that mount, not for the kernel; remove it", quote(o))
		case o == "ro" || o == "rw":
			// The host mounts a filesystem once for all machines, writable.
			c.bad(at, "%s is set per machine; remove it, and write \"read-only: true\" at the storage entry of a machine that may only read", quote(o))
		case f.Provider == "tmpfs" && (name == "size" || name == "nr_blocks"):
			c.bad(at, "%s differs from the declared size; remove it and use \"size:\", like \"size: 64MiB\"", quote(o))
		case mountoption.Unknown(f.MountedAs(), o) && c.ok(path+".type"):
			c.bad(at, "%s is an option of ext4, and %s cannot be mounted with it; remove it", quote(o), f.MountedAs())
		default:
			c.once(seen, nil, o, at, "a mount option of")
		}
	}
}

// reference checks that a named object is declared in this or another document,
// and reports whether it is. It accepts any name if the document's objects of
// the kind could not be read.
func reference[T any](c *checker, path, kind, name string, own, others map[string]T) bool {
	if !c.ok(path) {
		return false
	}
	if _, found := declared(c, kind, name, own, others); found || c.others.Open || !c.ok(kind+"s") {
		return true
	}
	hint := fmt.Sprintf("; declare it under %q", kind+"s")
	if len(c.errs) < maxHints && len(own)+len(others) <= maxHinted {
		known := declaredNames(c, kind, own, others)
		if meant := near.Word(name, known); meant != "" || len(known) > 0 && len(known) <= 10 {
			hint = suggestion(meant, known)
		}
	}
	place := "in this file"
	if c.others.Where != nil {
		place = "in any document"
	}
	c.bad(path, "the %s %s is not declared %s%s", kind, quote(name), place, hint)
	return false
}

// The bounds for suggesting a name. maxHints is the number of errors with a
// suggestion, and maxHinted the number of names to choose from.
const (
	maxHints  = 10
	maxHinted = 1000
)
