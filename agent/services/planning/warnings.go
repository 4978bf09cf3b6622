package planning

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/mountoption"
)

// Warnings implements an optional part of api.Planner. It returns warnings about
// the machines, networks and filesystems in scope. It warns of expected failures,
// e.g. an unknown image or more memory than the host has, of overruled mount options,
// and of firewall rules that name a NIC which is to join a bridge.
// It sends nothing over a network. Where it cannot read information, it does not
// warn.
func (p Planner) Warnings(ctx context.Context, objects []declare.Planned, scope map[string]bool) []string {
	warnings := p.firewallWarnings(ctx, objects, scope)
	own := map[spec.ContainerType][]string{}
	against := map[wantedImage]error{}
	room := hostCapacity(p.StateDir)
	for _, o := range objects {
		object := o.After.Kind + "/" + o.After.Name
		if !scope[object] || o.After.Life != "" && o.After.Life != state.Alive {
			continue
		}
		var f spec.FilesystemRecord
		if o.After.Kind == spec.KindFilesystem && json.Unmarshal(o.After.Spec, &f) == nil {
			if text := mountoption.Warning(f.Filesystem.MountedAs(), f.Filesystem.MountOptions); text != "" {
				warnings = append(warnings, object+": "+text)
			}
		}
		if o.After.Kind != spec.KindMachine {
			continue
		}
		var r spec.MachineRecord
		if json.Unmarshal(o.After.Spec, &r) != nil {
			continue
		}
		if needsImage(o, r.Machine.Image) {
			if _, asked := own[r.Machine.Type]; !asked {
				own[r.Machine.Type] = p.Images.Names(ctx, r.Machine.Type)
			}
			image := wantedImage{r.Machine.Type, r.Machine.Image}
			err, known := against[image]
			if !known && len(against) < manyImages {
				err = p.Images.Check(ctx, image.containerType, image.reference, own[image.containerType])
				against[image] = err
			}
			if err != nil {
				warnings = append(warnings, fmt.Sprintf("%s: %v", object, err))
			}
		}
		if limitless := p.Limitless(r.Machine.Type); r.Machine.RootDisk > 0 && limitless != "" {
			warnings = append(warnings, fmt.Sprintf("%s: root-disk: %s does not hold: %s", object, r.Machine.RootDisk, limitless))
		}
		for _, text := range room.exceeded(r.Machine) {
			warnings = append(warnings, object+": "+text)
		}
	}
	return warnings
}

// manyImages is the largest number of images that Warnings checks. It skips the
// others.
const manyImages = 100

type wantedImage struct {
	containerType spec.ContainerType
	reference     string
}

// needsImage reports whether a create or recreate of the machine o will need
// the image.
func needsImage(o declare.Planned, image string) bool {
	if o.Before == nil {
		return true
	}
	var status spec.MachineStatus
	if json.Unmarshal(o.Before.Status, &status) != nil || status.Instance == nil {
		return true
	}
	var was spec.MachineRecord
	return json.Unmarshal(o.Before.Spec, &was) == nil && was.Machine.Image != image
}

// capacity is the most that the host can give to a machine. A field is zero if
// it is unknown.
type capacity struct {
	cpus         int
	memory, disk int64 // bytes
}

// hostCapacity reads the capacity of the host. stateDir is the agent's state
// directory.
func hostCapacity(stateDir string) capacity {
	c := capacity{cpus: runtime.NumCPU()}
	if f, err := os.Open("/proc/meminfo"); err == nil {
		c.memory = memTotal(f)
		_ = f.Close()
	}
	// The pool of root disks may be on any filesystem, so the largest
	// filesystem counts.
	for _, path := range []string{stateDir, "/", "/var/lib/lxd", "/var/snap/lxd/common", "/var/lib/incus", "/var/lib/libvirt"} {
		var s unix.Statfs_t
		if unix.Statfs(path, &s) == nil {
			c.disk = max(c.disk, int64(s.Blocks)*s.Bsize)
		}
	}
	return c
}

// memTotal reads the host's memory in bytes from the text of /proc/meminfo
// (proc(5)). It returns 0 if the text lacks it.
func memTotal(r io.Reader) int64 {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == "MemTotal:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// exceeded returns a text for each size of a machine that is above the host's
// capacity.
func (c capacity) exceeded(m spec.Machine) []string {
	var texts []string
	if c.cpus > 0 && m.CPUs > c.cpus {
		texts = append(texts, fmt.Sprintf("cpus: %d is more than the %d of this host", m.CPUs, c.cpus))
	}
	for _, of := range []struct {
		key    string
		wanted spec.Size
		has    int64
	}{{"memory", m.Memory, c.memory}, {"root-disk", m.RootDisk, c.disk}} {
		if of.has > 0 && int64(of.wanted) > of.has {
			texts = append(texts, fmt.Sprintf("%s: %s is more than the %d MiB of this host", of.key, of.wanted, of.has>>20))
		}
	}
	return slices.Clip(texts)
}
