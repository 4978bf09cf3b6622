package declare

import (
	"maps"

	"hostler/agent/spec"
	"hostler/agent/spec/documents"
	"hostler/agent/state"
	"hostler/internal/fault"
)

// This file holds the users' requests about single objects.

// Retry requests a new attempt at an object, even if it is being removed. If
// force is true, the attempt detaches storage even while a process holds it.
func (w *State) Retry(object string, force bool) error {
	o, err := w.object(object)
	if err != nil {
		return err
	}
	h := o.head()
	h.RetryRequest, h.Force = h.RetryRequest+1, force
	return nil
}

// RetryType requests a new attempt at preparing the host for a container type.
func (w *State) RetryType(name string) error {
	id := state.ID{Kind: spec.KindContainerType, Name: name}
	if w.settings[id] == nil {
		return notThere(id.Kind + "/" + name)
	}
	var r spec.TypeRecord
	err := w.setting(id).read(&r)
	r.RetryRequest++
	w.settings[id].record = r
	return err
}

// SetHarvest overrides the configured harvest mode. The mode "" means as
// configured.
func (w *State) SetHarvest(mode string) error {
	var r spec.HostRecord
	host := w.setting(hostID)
	err := host.read(&r)
	r.Harvest = mode
	host.record = r
	return err
}

// AdoptHost makes a store that was copied from another host this host's store,
// so that the agent may delete again. It changes nothing in a store that was
// made on this host.
func (w *State) AdoptHost() error {
	var r spec.HostRecord
	host := w.setting(hostID)
	err := host.read(&r)
	r.Recovery.AdoptHost()
	host.record = r
	return err
}

// hostID names the host's record.
var hostID = state.ID{Kind: spec.KindHost, Name: spec.HostName}

// setting returns the setting of the id. It is empty if the store has none.
func (w *State) setting(id state.ID) *setting {
	if w.settings[id] == nil {
		w.settings[id] = &setting{object: state.Object{ID: id}}
	}
	return w.settings[id]
}

// read decodes the stored record.
func (s *setting) read(into any) error {
	return s.object.Decode(into, nil)
}

// RetryImage requests a new attempt at the machines that could not be created
// for lack of an image.
func (w *State) RetryImage(reference string) {
	for _, o := range w.objects {
		if m := o.machine(); m != nil && m.Machine.Image == reference && o.lacksInstance() {
			m.RetryRequest++
		}
	}
}

// SetPower requests a power state of a machine. action is start, stop or
// restart.
func (w *State) SetPower(name, action string) error {
	o, err := w.alive(spec.KindMachine + "/" + name)
	if err != nil {
		return err
	}
	m := o.machine()
	declared, wanted := m.Machine.WantsRunning(), wantsRunning(m)
	if action != "stop" && o.frozen() {
		m.RetryRequest++ // resumes the instance
	}
	switch action {
	case "start", "stop":
		want := action == "start"
		m.PowerOverride = nil
		if want != declared || want && o.notAutostarted() {
			m.PowerOverride = &want
		}
	case "restart":
		if !wanted || o.notAutostarted() {
			return fault.New(fault.Conflict, "cannot restart machine/%s: it is stopped by request or declaration; start it", name)
		}
		m.RestartRequest++
	default:
		return fault.New(fault.Invalid, "cannot %s a machine: start, stop or restart it", fault.Clip(action, 16))
	}
	return nil
}

// alive returns an object that is not being removed.
func (w *State) alive(object string) (*object, error) {
	o, err := w.object(object)
	if err == nil && o.life != state.Alive {
		return nil, fault.New(fault.NotReady, "%s is being removed", object)
	}
	return o, err
}

// MachineOf returns the name of the machine for an instance of that type and name. The
// instance of a renamed machine has the former name.
func (w *State) MachineOf(t spec.ContainerType, instance string) string {
	for _, o := range w.objects {
		if m := o.machine(); m != nil && m.InstanceName == instance && m.Machine.Type == t {
			return o.Name
		}
	}
	return instance
}

// Adopt takes an existing instance under declaration. If a machine of that name
// is declared and has no instance, it gets the instance. Otherwise the machine
// gets a declaration with its own name. uid is the machine's former uid, or ""
// if it is not known. token is the token of the stamp that the instance gets.
func (w *State) Adopt(name string, machine spec.Machine, uid, token string) error {
	object := spec.KindMachine + "/" + name
	if o := w.objects[object]; o != nil {
		m := o.machine()
		if o.life != state.Alive {
			return fault.New(fault.NotReady, "cannot adopt %s: machine/%s is still being removed", name, name)
		}
		if m.Machine.Type != machine.Type {
			return fault.New(fault.Conflict, "cannot adopt %s/%s: machine/%s is declared of type %s", machine.Type, name, name, m.Machine.Type)
		}
		// A machine with an instance was created by hostler or adopted before.
		if status, _ := o.machineStatus(); status.Instance == nil {
			// The consent was given before this instance was known.
			m.Adopted, m.AdoptedToken, m.Allow = true, token, nil
		}
		return nil
	}
	if d := w.declarations[name]; d != nil {
		return fault.New(fault.Conflict, "cannot adopt %s/%s: there is a declaration %s without that machine; declare it there first",
			machine.Type, name, name)
	}
	docs := []Document{{Source: spec.SourceApply, Document: documents.Document{Name: name, Declaration: spec.Declaration{
		Version: spec.Version, Name: name, Machines: map[string]spec.Machine{name: machine},
	}}}}
	w.enforce(documents.Merge(w.request(docs)), docs)
	w.updateRecords(docs, removal{partial: true})
	o := w.objects[object]
	o.machine().Adopted, o.machine().AdoptedToken, o.uid = true, token, uid
	if err := w.checkCount(); err != nil {
		return fault.New(fault.Invalid, "cannot adopt %s: %w", name, err)
	}
	return nil
}

// Resize changes the size of a volume in its record and in its document.
// rounded is the real size of a volume that is declared with that size.
func (w *State) Resize(name string, size, rounded spec.Size) error {
	o, err := w.alive(spec.KindVolume + "/" + name)
	if err != nil {
		return err
	}
	status, known := o.storageStatus()
	if !known {
		return fault.New(fault.NotReady, "cannot read volume/%s", name)
	}
	r := o.now.(*spec.VolumeRecord)
	// A declared size that the volume never reached may be reduced again.
	has := r.Volume.Size
	if status.Created && status.Size > 0 {
		has = spec.Size(status.Size)
	}
	if rounded < has {
		return fault.New(fault.Invalid, "cannot resize volume/%s: it has %s and cannot shrink to %s: its data may not fit", name, has, size)
	}
	if r.Held != "" {
		return fault.New(fault.Conflict, "cannot resize volume/%s: no document declares it any more; declare it, and change its size there", name)
	}
	if d := w.declarations[w.owners[spec.KindVolume+"/"+name]]; d != nil && !d.gone {
		if isFile(d.record.Source) {
			return fault.New(fault.Conflict, "cannot resize volume/%s: it is declared in %s; change its size there", name, d.record.Source)
		}
		// The map belongs to the stored record, so a copy is changed.
		volumes := maps.Clone(d.record.Document.Volumes)
		v := volumes[name]
		v.Size = size
		volumes[name] = v
		d.record.Document.Volumes = volumes
	}
	r.Volume.Size = size
	return nil
}
