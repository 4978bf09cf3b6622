package storageprovisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/storage"
	"hostler/storage/idmap"
)

// fakeHost is an in-memory host: objects, their users and planned failures. It
// refuses invalid calls as a real host does, and records calls that must never
// happen.
type fakeHost struct {
	mu          sync.Mutex
	volumes     map[string]*storage.Volume
	filesystems map[string]*storage.Filesystem
	on          map[string]string // the device of a filesystem
	views       map[string]idmap.View
	used        map[string]string // the user of an object, by KIND/NAME, which prevents detaching
	fails       map[string]error  // by ACTION KIND/NAME
	blind       map[string]error  // by source
	holds       map[string]error  // the error that keeps the device of an unmounted filesystem attached, by its name
	wrong       []string
	calls       []string
	loops       int
	gone        map[string]bool // filesystems whose devices are blank
	attaches    bool            // a volume has its device as soon as it is created
}

func newFakeHost() *fakeHost {
	return &fakeHost{
		volumes: map[string]*storage.Volume{}, filesystems: map[string]*storage.Filesystem{}, on: map[string]string{},
		views: map[string]idmap.View{}, used: map[string]string{}, fails: map[string]error{}, gone: map[string]bool{}, blind: map[string]error{}, holds: map[string]error{},
	}
}

// reboot removes everything that does not survive a restart of the host.
func (h *fakeHost) reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.volumes {
		v.Attachments = nil
	}
	for _, f := range h.filesystems {
		f.Attachments, f.Options = nil, nil
	}
	h.views, h.used = map[string]idmap.View{}, map[string]string{}
}

func (h *fakeHost) sources() Sources {
	return Sources{
		Volumes: map[string]storage.VolumeSource{"loop": fakeVolumes{h}},
		Filesystems: map[string]storage.FilesystemSource{
			"tmpfs": fakeFilesystems{h, "tmpfs"}, "rootfs": fakeFilesystems{h, "rootfs"}, Managed: fakeFilesystems{h, Managed},
		},
		Views: fakeViews{h}, Mounts: "/state/filesystems", ViewDir: "/state/mounts",
		Map: func(context.Context, spec.ContainerType) (idmap.Map, error) { return aMap, nil },
	}
}

var aMap = idmap.Map{Users: idmap.Range{First: 100000, Count: 65536}, Groups: idmap.Range{First: 100000, Count: 65536}}

// state describes all objects, for comparisons.
func (h *fakeHost) state() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, v := range h.volumes {
		lines = append(lines, fmt.Sprintf("volume %s %d %v", v.ID, v.Size, len(v.Attachments) > 0))
	}
	for _, f := range h.filesystems {
		lines = append(lines, fmt.Sprintf("filesystem %s %d %v", f.ID, f.Size, len(f.Attachments) > 0))
	}
	for path, v := range h.views {
		lines = append(lines, fmt.Sprintf("view %s %v %v", path, v.ReadOnly, v.Mapped))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (h *fakeHost) did() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// begin records a call and returns its planned failure. The caller holds the
// host's lock.
func (h *fakeHost) begin(action, object string) error {
	call := action + " " + object
	h.calls = append(h.calls, call)
	return h.fails[call]
}

// forced is the name of a forced action.
func forced(action string, force bool) string {
	if force {
		return "force " + action
	}
	return action
}

func (h *fakeHost) refuse(format string, args ...any) error {
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
	return fault.New(fault.NeedsOperator, format, args...)
}

type fakeVolumes struct{ *fakeHost }

func one[P, T any](h *fakeHost, items []P, do func(P) (T, error)) []storage.Result[T] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return storage.Each(context.Background(), items, func(_ context.Context, p P) (T, error) { return do(p) })
}

func (h fakeVolumes) ValidateVolume(p storage.VolumeParams) error {
	if p.Size%2 != 0 {
		return fault.New(fault.Invalid, "an odd size")
	}
	return nil
}

func (h fakeVolumes) Create(_ context.Context, volumes []storage.VolumeParams) []storage.Result[storage.Volume] {
	return one(h.fakeHost, volumes, func(p storage.VolumeParams) (storage.Volume, error) {
		if err := h.begin("create", "volume/"+p.ID); err != nil {
			return storage.Volume{}, err
		}
		if v := h.volumes[p.ID]; v != nil {
			return *v, p.OwnedBy(v.Stamp)
		}
		v := &storage.Volume{Ref: p.Ref, Size: p.Size, Sparse: p.Sparse, Path: "/state/volumes/" + p.ID + ".img", Record: p.Record}
		if h.attaches {
			v.Attachments = []storage.VolumeAttachment{{Device: "/dev/loop77"}}
		}
		h.volumes[p.ID] = v
		return *v, nil
	})
}

func (h fakeVolumes) GrowVolumes(_ context.Context, volumes []storage.GrowParams) []storage.Result[storage.Volume] {
	return one(h.fakeHost, volumes, func(p storage.GrowParams) (storage.Volume, error) {
		if err := h.begin("grow", "volume/"+p.ID); err != nil {
			return storage.Volume{}, err
		}
		v := h.volumes[p.ID]
		if p.Size < v.Size {
			return *v, h.refuse("shrinks volume/%s", p.ID)
		}
		for _, f := range h.filesystems {
			if len(v.Attachments) > 0 && h.on[f.ID] == v.Attachments[0].Device {
				f.Growable += p.Size - v.Size
			}
		}
		v.Size = p.Size
		return *v, nil
	})
}

func (h fakeVolumes) Attach(_ context.Context, volumes []storage.VolumeAttachParams) []storage.Result[storage.VolumeAttachment] {
	return one(h.fakeHost, volumes, func(p storage.VolumeAttachParams) (storage.VolumeAttachment, error) {
		if err := h.begin("attach", "volume/"+p.ID); err != nil {
			return storage.VolumeAttachment{}, err
		}
		v := h.volumes[p.ID]
		if v == nil {
			return storage.VolumeAttachment{}, h.refuse("attaches volume/%s, which is not there", p.ID)
		}
		if len(v.Attachments) == 0 {
			h.loops++
			v.Attachments = []storage.VolumeAttachment{{Device: fmt.Sprintf("/dev/loop%d", h.loops), ReadOnly: p.ReadOnly}}
			for _, f := range h.filesystems {
				if f.Label == p.ID {
					h.on[f.ID] = v.Attachments[0].Device
				}
			}
		}
		return v.Attachments[0], nil
	})
}

func (h fakeVolumes) Detach(_ context.Context, volumes []storage.DetachParams) []error {
	return errorsOf(one(h.fakeHost, volumes, func(p storage.DetachParams) (int, error) {
		if err := h.begin(forced("detach", p.Force), "volume/"+p.ID); err != nil {
			return 0, err
		}
		v := h.volumes[p.ID]
		if v == nil || len(v.Attachments) == 0 {
			return 0, nil
		}
		for _, f := range h.filesystems {
			if h.on[f.ID] == v.Attachments[0].Device && len(f.Attachments) > 0 {
				return 0, h.refuse("detaches volume/%s under filesystem/%s", p.ID, f.ID)
			}
		}
		if by := h.used["volume/"+p.ID]; by != "" {
			return 0, h.refuse("detaches volume/%s, which %s has", p.ID, by)
		}
		v.Attachments = nil
		return 0, nil
	}))
}

func (h fakeVolumes) Destroy(_ context.Context, volumes []storage.Ref) []error {
	return errorsOf(one(h.fakeHost, volumes, func(r storage.Ref) (int, error) {
		if err := h.begin("destroy", "volume/"+r.ID); err != nil {
			return 0, err
		}
		v := h.volumes[r.ID]
		switch {
		case v == nil:
			return 0, nil
		case r.OwnedBy(v.Stamp) != nil:
			return 0, h.refuse("destroys volume/%s of another", r.ID)
		case len(v.Attachments) > 0:
			return 0, h.refuse("destroys volume/%s, which is attached", r.ID)
		}
		delete(h.volumes, r.ID)
		return 0, nil
	}))
}

func (h fakeVolumes) List(context.Context) ([]storage.Volume, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.blind["loop"]; err != nil {
		return nil, err
	}
	var all []storage.Volume
	for _, id := range slices.Sorted(maps.Keys(h.volumes)) {
		v := *h.volumes[id]
		v.Attachments = slices.Clone(v.Attachments)
		all = append(all, v)
	}
	return all, nil
}

type fakeFilesystems struct {
	*fakeHost
	source string
}

func (h fakeFilesystems) Create(_ context.Context, filesystems []storage.FilesystemParams) []storage.Result[storage.Filesystem] {
	return one(h.fakeHost, filesystems, func(p storage.FilesystemParams) (storage.Filesystem, error) {
		if err := h.begin("create", "filesystem/"+p.ID); err != nil {
			return storage.Filesystem{}, err
		}
		if f := h.filesystems[p.ID]; f != nil {
			if h.gone[p.ID] && !p.Anew {
				return *f, h.refuse("makes filesystem/%s anew, and nobody said so", p.ID)
			}
			delete(h.gone, p.ID)
			f.Problem, f.Unmade = "", false
			return *f, p.OwnedBy(f.Stamp)
		}
		f := &storage.Filesystem{Ref: p.Ref, Type: p.Type, Size: p.Size, UUID: h.source, Record: p.Record}
		if h.source == Managed {
			for _, v := range h.volumes {
				if len(v.Attachments) > 0 && v.Attachments[0].Device == p.Device {
					f.Label, f.Size = v.ID, v.Size
				}
			}
			if f.Label == "" {
				return *f, h.refuse("makes filesystem/%s on %q, which is no device", p.ID, p.Device)
			}
			for id, other := range h.filesystems {
				if h.on[id] == p.Device && len(other.Attachments) > 0 {
					return *f, h.refuse("makes filesystem/%s on %q, where filesystem/%s is mounted", p.ID, p.Device, id)
				}
			}
			h.on[p.ID] = p.Device
		}
		h.filesystems[p.ID] = f
		return *f, nil
	})
}

func (h fakeFilesystems) GrowFilesystems(_ context.Context, filesystems []storage.GrowParams) []storage.Result[storage.Filesystem] {
	return one(h.fakeHost, filesystems, func(p storage.GrowParams) (storage.Filesystem, error) {
		if err := h.begin("grow", "filesystem/"+p.ID); err != nil {
			return storage.Filesystem{}, err
		}
		f := h.filesystems[p.ID]
		f.Size, f.Growable = max(p.Size, f.Size+f.Growable), 0
		return *f, nil
	})
}

func (h fakeFilesystems) Attach(_ context.Context, filesystems []storage.FilesystemAttachParams) []storage.Result[storage.FilesystemAttachment] {
	return one(h.fakeHost, filesystems, func(p storage.FilesystemAttachParams) (storage.FilesystemAttachment, error) {
		if err := h.begin("attach", "filesystem/"+p.ID); err != nil {
			return storage.FilesystemAttachment{}, err
		}
		f := h.filesystems[p.ID]
		if f == nil || h.source == Managed && p.Device != h.on[p.ID] {
			return storage.FilesystemAttachment{}, h.refuse("mounts filesystem/%s, which is not on %q", p.ID, p.Device)
		}
		if h.gone[p.ID] {
			return storage.FilesystemAttachment{}, fault.New(fault.NotFound, "its data is gone: %s is blank", p.Device)
		}
		f.Attachments, f.Held = []storage.FilesystemAttachment{{Path: p.Path, Device: p.Device}}, ""
		f.Options = append([]string{}, p.Options...)
		return f.Attachments[0], nil
	})
}

func (h fakeFilesystems) Detach(_ context.Context, filesystems []storage.DetachParams) []error {
	return errorsOf(one(h.fakeHost, filesystems, func(p storage.DetachParams) (int, error) {
		if err := h.begin(forced("detach", p.Force), "filesystem/"+p.ID); err != nil {
			return 0, err
		}
		if by := h.used["filesystem/"+p.ID]; by != "" {
			return 0, h.refuse("unmounts filesystem/%s, which %s has", p.ID, by)
		}
		f := h.filesystems[p.ID]
		if f == nil {
			return 0, nil
		}
		f.Attachments, f.Options, f.Held = nil, nil, ""
		if h.holds[p.ID] != nil {
			f.Held = "/dev/loop99"
		}
		return 0, h.holds[p.ID]
	}))
}

func (h fakeFilesystems) Destroy(_ context.Context, filesystems []storage.Ref) []error {
	return errorsOf(one(h.fakeHost, filesystems, func(r storage.Ref) (int, error) {
		if err := h.begin("destroy", "filesystem/"+r.ID); err != nil {
			return 0, err
		}
		if f := h.filesystems[r.ID]; f != nil && (len(f.Attachments) > 0 || f.Held != "") {
			return 0, h.refuse("destroys filesystem/%s, which is attached", r.ID)
		}
		delete(h.filesystems, r.ID)
		delete(h.on, r.ID)
		return 0, nil
	}))
}

func (h fakeFilesystems) List(context.Context) ([]storage.Filesystem, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.blind[h.source]; err != nil {
		return nil, err
	}
	var all []storage.Filesystem
	for _, id := range slices.Sorted(maps.Keys(h.filesystems)) {
		if f := *h.filesystems[id]; f.UUID == h.source {
			f.Attachments = slices.Clone(f.Attachments)
			all = append(all, f)
		}
	}
	return all, nil
}

type fakeViews struct{ *fakeHost }

func (h fakeViews) List(context.Context, ...string) (map[string]idmap.View, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := maps.Clone(h.views)
	for id, f := range h.filesystems {
		for _, a := range f.Attachments {
			all[a.Path] = idmap.View{Filesystem: id}
		}
	}
	return all, nil
}

func (h fakeViews) Show(_ context.Context, views []idmap.Params) []storage.Result[idmap.View] {
	return one(h.fakeHost, views, func(p idmap.Params) (idmap.View, error) {
		if err := h.begin("show", p.Path); err != nil {
			return idmap.View{}, err
		}
		id := p.Source[strings.LastIndex(p.Source, "/")+1:]
		if f := h.filesystems[id]; f == nil || len(f.Attachments) == 0 {
			return idmap.View{}, h.refuse("shows filesystem/%s, which is not mounted", id)
		}
		h.views[p.Path] = idmap.View{Filesystem: id, ReadOnly: p.ReadOnly, Mapped: p.Map != nil}
		return h.views[p.Path], nil
	})
}

func (h fakeViews) Hide(_ context.Context, views []idmap.HideParams) []error {
	return errorsOf(one(h.fakeHost, views, func(p idmap.HideParams) (int, error) {
		if err := h.begin(forced("hide", p.Force), p.Path); err != nil {
			return 0, err
		}
		delete(h.views, p.Path)
		return 0, nil
	}))
}
