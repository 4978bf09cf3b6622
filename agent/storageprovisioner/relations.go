package storageprovisioner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/idmap"
)

// relation says what a machine has and wants of an entity.
type relation int

const (
	// gone means that the machine has no attachment of the entity and wants
	// none.
	gone relation = iota
	// leaving means that the machine must let go of the entity, because it no
	// longer declares the entity or because the entity is being removed.
	leaving
	// keeps means that the machine is being removed and that its instance uses
	// the entity until the removal.
	keeps
	// wants means that the machine declares the entity.
	wants
)

// is reports whether an observed object with the entity's name belongs to the
// entity. An object with an empty uid has a damaged stamp and belongs to the
// entity, too.
func (p *planner) is(e *Entity, found storage.Ref) bool {
	if found.Stamp.UID == "" || found == e.ref(p.policy.Namespace) {
		return true
	}
	p.strangers[e.key()] = found.Stamp.UID
	return false
}

// relation returns a machine's relation to an entity and the declared
// attachment.
func (p *planner) relation(e *Entity, machine string) (relation, spec.Attachment) {
	g := cmp.Or(p.byName[machine], &Machine{})
	a, has := g.has(e)
	switch phase := p.phase(e, machine); {
	case has && !g.Dying && e.Life == state.Alive:
		return wants, a
	case has && g.Dying && g.Status.InUse(e.key()):
		return keeps, a
	case has && !g.Dying, phase != spec.PhaseFree:
		return leaving, a
	}
	return gone, a
}

// phase returns the phase of the entity's attachment to a machine.
func (p *planner) phase(e *Entity, machine string) spec.Phase {
	g := p.byName[machine]
	return e.Status.Attachments[machine].Phase(g != nil && g.Status.InUse(e.key()))
}

// machines returns the sorted names of the machines that declare or use the
// entity, have an attachment of it in its status, or have a view of it.
func (p *planner) machines(e *Entity) []string {
	if names, known := p.related[e]; known {
		return names
	}
	return p.relatives(e)
}

func (p *planner) relatives(e *Entity) []string {
	names := slices.Clone(p.listed[e.key()])
	for name := range e.Status.Attachments {
		names = append(names, name)
	}
	if e.Kind == spec.KindFilesystem {
		names = append(names, p.views[e.Name]...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// wanted reports whether any machine declares the entity.
func (p *planner) wanted(e *Entity) bool {
	for _, m := range p.machines(e) {
		if r, _ := p.relation(e, m); r == wants {
			return true
		}
	}
	return false
}

// thereAtAll reports whether the host has the entity, intact or damaged.
func (p *planner) thereAtAll(e *Entity) bool {
	return p.volumesSeen[e.Name] != nil && e.Kind == spec.KindVolume || p.seen[e.Name] != nil && e.Kind == spec.KindFilesystem
}

// view returns the parameters of a machine's view of a filesystem.
func (p *planner) view(e *Entity, machine string, a spec.Attachment) idmap.Params {
	params := idmap.Params{
		Source: p.policy.mountPath(e.Name), Path: p.policy.viewPath(machine, e.Name), ReadOnly: a.ReadOnly,
		Setuid: !slices.Contains(e.Filesystem.MountOptions, "nosuid"),
	}
	if g := p.byName[machine]; g != nil && !g.Privileged {
		guests := p.policy.Maps[g.Type]
		params.Map = &guests.Map
	} else {
		// Only the host's root can create device nodes. Root in a privileged
		// guest is the host's root, so its view has devices.
		params.Devices = !slices.Contains(e.Filesystem.MountOptions, "nodev")
	}
	return params
}

// both returns an error text if a volume is declared both as a machine's block
// device and for a filesystem, else "". With both, the machine could read the
// filesystem's data and write to its mounted superblock. The validation of
// documents refuses this too, but the store may still hold such records.
// Existing mounts and attachments stay until the conflict is resolved.
func (p *planner) both(volume string) string {
	v := p.volumes[volume]
	if v == nil {
		return ""
	}
	for _, f := range p.on[volume] {
		for _, m := range p.listed[v.key()] {
			if r, _ := p.relation(v, m); r == wants && f.Life == state.Alive {
				return fmt.Sprintf("machine/%s has %s as a block device and %s is made on it, and a volume cannot be both: remove it from the machine's storage, or declare a second volume",
					m, v.key(), f.key())
			}
		}
	}
	return ""
}

// deviceNeeded reports whether the volume needs a block device on the host.
func (p *planner) deviceNeeded(e *Entity) bool {
	return p.wanted(e) || slices.ContainsFunc(p.on[e.Name], p.onDevice)
}

// onDevice reports whether a filesystem on a volume needs the volume's device.
func (p *planner) onDevice(f *Entity) bool {
	seen := p.seen[f.Name]
	if _, mounted := p.mounted(f); mounted {
		return true
	}
	if f.Life != state.Alive {
		return false
	}
	return p.wanted(f) || (seen == nil || unmade(f, seen)) && p.absent(f, "").Held == "" && !failedForGood(f)
}

// failedForGood reports whether the entity failed and no retry is planned. The
// volume of such a filesystem needs no device.
func failedForGood(e *Entity) bool {
	return e.Status.Attempts.ErrorKind != "" && e.Status.Attempts.NextRetry == nil && e.Status.ObservedGeneration >= e.Generation
}

// deviceInUse returns the event for which a detach of the volume's device must
// wait, or "". again is true if the device is attached again afterwards, in
// another mode. stop is then the machine that the user must stop before, or "".
func (p *planner) deviceInUse(e *Entity, again bool) (waiting, stop string) {
	for _, f := range p.on[e.Name] {
		if _, mounted := p.mounted(f); mounted {
			return f.key() + " to be unmounted", ""
		}
	}
	for _, m := range p.machines(e) {
		r, _ := p.relation(e, m)
		switch {
		case r == gone, r == wants && again && p.phase(e, m) == spec.PhaseFree:
		case r == wants && again:
			// A running instance refers to the device by a number, which the
			// kernel may give to another volume.
			return "machine/" + m + " to be stopped", m
		default:
			return "machine/" + m + " to detach", ""
		}
	}
	return "", ""
}

// readOnly reports whether the volume's device must refuse writes, because all
// its users only read.
func (p *planner) readOnly(e *Entity) bool {
	if len(p.on[e.Name]) > 0 {
		return false
	}
	readers := false
	for _, m := range p.machines(e) {
		if r, a := p.relation(e, m); r == wants || r == keeps {
			if !a.ReadOnly {
				return false
			}
			readers = true
		}
	}
	return readers
}

// device returns the volume's block device. The second result is false if it
// has none.
func device(v *storage.Volume) (storage.VolumeAttachment, bool) {
	if v == nil {
		return storage.VolumeAttachment{}, false
	}
	return v.Device()
}

// deviceOf returns the path of the device of a filesystem's volume, or in
// waiting the unmet precondition. It returns "" twice if the filesystem has no
// volume.
func (p *planner) deviceOf(e *Entity) (path, waiting string) {
	name := e.Filesystem.Volume
	if name == "" {
		return "", ""
	}
	v := p.volumes[name]
	d, attached := device(p.volumesSeen[name])
	switch {
	case v == nil || v.Life != state.Alive:
		return "", spec.KindVolume + "/" + name + " to be declared"
	case !attached:
		return "", spec.KindVolume + "/" + name
	case d.ReadOnly:
		return "", spec.KindVolume + "/" + name + " to be writable"
	case d.Former:
		if _, mounted := p.mounted(e); !mounted {
			return "", spec.KindVolume + "/" + name + " to be attached again"
		}
	}
	if holder := p.holder(v, e.key()); holder != "" {
		return "", holder
	}
	return d.Device, ""
}

// holder names the user that must release the entity before the user `to`
// (KIND/NAME) gets it, or returns "". Two writers would destroy a volume, and a
// filesystem that is not shared belongs to one machine. An entity that `to`
// already has stays with `to`.
func (p *planner) holder(e *Entity, to string) string {
	machine, _ := strings.CutPrefix(to, spec.KindMachine+"/")
	if e.Filesystem.Shared || e.Status.Attachments[machine].Source != "" {
		return ""
	}
	if e.Kind == spec.KindVolume {
		for _, f := range p.on[e.Name] {
			if _, mounted := p.mounted(f); mounted && f.key() != to {
				return f.key() + " to be unmounted"
			}
		}
	}
	for _, m := range p.machines(e) {
		if r, _ := p.relation(e, m); m != machine && (r == leaving || r == keeps) {
			return spec.KindMachine + "/" + m + " to detach"
		}
	}
	return ""
}

// unmade reports whether the creation of the filesystem is not complete.
func unmade(e *Entity, f *storage.Filesystem) bool {
	return f.Unmade || f.Problem != "" && !e.Status.Created
}

// lost reports whether the filesystem's data was missing at the last attach,
// and the operator has since requested an empty replacement.
func lost(e *Entity) bool {
	return failedAction(e.Status) == ActionAttach && e.Status.Attempts.ErrorKind == string(fault.NotFound) && e.requested()
}

// mounted returns the host's mount of a filesystem.
func (p *planner) mounted(e *Entity) (storage.FilesystemAttachment, bool) {
	f := p.seen[e.Name]
	if f == nil {
		return storage.FilesystemAttachment{}, false
	}
	path := p.policy.mountPath(e.Name)
	at := slices.IndexFunc(f.Attachments, func(a storage.FilesystemAttachment) bool { return a.Path == path })
	if at < 0 {
		return storage.FilesystemAttachment{}, false
	}
	return f.Attachments[at], true
}

// held reports whether an unmounted filesystem still has a device of the host,
// because its detachment stopped half-way.
func (p *planner) held(e *Entity) bool { return p.seen[e.Name] != nil && p.seen[e.Name].Held != "" }

// has returns the machine's declared attachment of an entity. The second result
// is false if there is none.
func (g *Machine) has(e *Entity) (spec.Attachment, bool) {
	at := slices.IndexFunc(g.Storage, func(a spec.Attachment) bool { return a.Is(e.Kind, e.Name) })
	if at < 0 {
		return spec.Attachment{}, false
	}
	return g.Storage[at], true
}
