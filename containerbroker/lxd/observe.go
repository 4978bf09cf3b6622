package lxd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/canonical/lxd/shared/api"

	"hostler/containerbroker"
	"hostler/internal/fault"
	"hostler/internal/oneline"
)

// The configuration keys of the stamp.
const (
	keyNamespace = "user.hostler.namespace"
	keyUID       = "user.hostler.uid"
	keyToken     = "user.hostler.token"
	keyRecord    = "user.hostler.record"
	keyStore     = "user.hostler.store"
)

// The configuration keys that hostler sets from the declaration.
const (
	keyCPUs       = "limits.cpu"
	keyMemory     = "limits.memory"
	keyAutostart  = "boot.autostart"
	keyPrivileged = "security.privileged"
	keyNesting    = "security.nesting"
	keyUserData   = "cloud-init.user-data"
	keyBaseImage  = "volatile.base_image"
	// keyOCI marks Incus's containers of OCI images.
	keyOCI = "volatile.container.oci"

	keyNetworkConfig = "cloud-init.network-config"
	keyVendorData    = "cloud-init.vendor-data"
)

// raw holds the values that Diff needs beyond containerbroker.Instance.
type raw struct {
	own, fromProfiles devices
	// pinned is true if cloud-init's instance-id is saved under keyPinned and
	// must be restored.
	pinned bool
}

// List implements containerbroker.Broker. It sends one request, and further
// requests e.g. if an instance is only partly created.
func (d *Driver) List(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	ctx, stop := d.whileAlive(ctx)
	defer stop()
	all, err := d.list(ctx, detail)
	if cause := context.Cause(ctx); err != nil && containerbroker.Unanswered(cause) != "" {
		return nil, cause
	}
	return all, err
}

func (d *Driver) list(ctx context.Context, detail bool) ([]containerbroker.Instance, error) {
	c, began := d.open(ctx, d.opts.RequestTimeout), time.Now()
	path := "/1.0/instances?recursion=1"
	if detail {
		path = "/1.0/instances?recursion=2"
	}
	var found []api.InstanceFull
	if _, err := c.get(path, &found); err != nil {
		if status, is := api.StatusErrorMatch(err); is && status >= http.StatusInternalServerError { // LXD itself is starting or stopping
			err = containerbroker.Unreachable(c.dialect.Name, c.dialect.Unit, err)
		}
		if containerbroker.Unanswered(err) != "" {
			return nil, err
		}
		return nil, fmt.Errorf("cannot list %s instances: %w", c.dialect.Name, err)
	}
	all := make([]containerbroker.Instance, 0, len(found))
	seen := map[string]bool{}
	unfinished := false
	for _, f := range found {
		if f.Name == "" || seen[f.Name] {
			return nil, fault.New(fault.Transient, "cannot list %s instances: an entry has no valid name", c.dialect.Name)
		}
		seen[f.Name] = true
		if f.StatusCode == api.Error && len(f.Config) == 0 {
			err := d.complete(c, &f)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("cannot list %s instances: %w", c.dialect.Name, err)
			}
		}
		all = append(all, instanceOf(f))
		unfinished = unfinished || all[len(all)-1].Status == containerbroker.StatusHalfMade
	}
	if err := d.markUnlimited(c, all); err != nil {
		return nil, fmt.Errorf("cannot list %s instances: %w", c.dialect.Name, err)
	}
	if unfinished {
		if err := d.markBusy(c, all, began); err != nil {
			return nil, fmt.Errorf("cannot list %s instances: %w", c.dialect.Name, err)
		}
	}
	slices.SortFunc(all, func(a, b containerbroker.Instance) int { return strings.Compare(a.Name, b.Name) })
	if detail {
		d.seeInits(all)
	}
	return all, nil
}

// seeInits passes the process ids of the inits of hostler's instances to
// d.inits.
func (d *Driver) seeInits(all []containerbroker.Instance) {
	pids := map[string]int64{}
	for _, i := range all {
		if i.PID > 0 && i.Stamp != nil && i.Stamp.Namespace == d.opts.Namespace {
			pids[i.Name] = i.PID
		}
	}
	d.inits.seeAll(pids)
}

// instanceOf converts an instance from LXD's answer. It trusts no value. An
// unreadable value becomes the zero value, and an unknown state becomes
// StatusUnknown.
func instanceOf(f api.InstanceFull) containerbroker.Instance {
	i := containerbroker.Instance{
		Name:    f.Name,
		Stamp:   stampOf(f.Config),
		Status:  statusOf(f.StatusCode),
		ImageID: f.Config[keyBaseImage],
		Arch:    archOf(f.Architecture),
		Created: f.CreatedAt,
		Started: f.LastUsedAt,
		Ports:   portsOf(f),
	}
	if halfMade(f.Instance) {
		i.Status = containerbroker.StatusHalfMade
	}
	devices := f.ExpandedDevices
	if devices == nil {
		devices = f.Devices
	}
	for name, device := range devices {
		if mac := cmp.Or(device[keyHWAddr], f.Config["volatile."+name+".hwaddr"]); device["type"] == "nic" && mac != "" {
			i.MACs = append(i.MACs, strings.ToLower(mac))
		}
	}
	slices.Sort(i.MACs)
	_, expanded := rootDisk(devices)
	_, own := rootDisk(f.Devices)
	i.Stored, i.Properties = settingsIn(f, own, expanded)
	i.Odd = cmp.Or(foreignKind(f.Instance), oddIn(f.Config, own))
	if f.State != nil {
		i.PID, i.Addresses = f.State.Pid, addressesOf(f.State)
	}
	fromProfiles := maps.Clone(devices)
	maps.DeleteFunc(fromProfiles, func(name string, _ map[string]string) bool { return f.Devices[name] != nil })
	i.Raw = raw{pinned: f.Config[keyPinned] != "", own: ownDevices(f.Config, f.Devices), fromProfiles: fromProfiles}
	return i
}

// foreignKind names the kind of an instance that is no system container, the
// only kind that hostler makes; else "".
func foreignKind(i api.Instance) string {
	switch {
	case i.Type == string(api.InstanceTypeVM):
		return "it is a virtual machine, and hostler manages only the containers of this hypervisor"
	case isTrue(i.Config[keyOCI]):
		return "it is an application container of an OCI image, and hostler manages only system containers"
	}
	return ""
}

// oddIn describes a limit of the instance itself that is not a valid number or
// size. It returns "" if all limits are valid.
func oddIn(config, root map[string]string) string {
	odd := func(what, value, is string) string {
		return fmt.Sprintf("%s is %s, which is not a %s: set it to a valid value first", what, oneline.Clean(value, 32), is)
	}
	for _, k := range configKeys {
		if k.odd(config[k.key]) {
			return odd(k.key, config[k.key], k.valid)
		}
	}
	if bytesOf(root["size"]) < 0 {
		return odd("the size of its root disk", root["size"], "size in bytes")
	}
	return ""
}

// effective returns the value of a configuration key that is in effect, which
// may come from a profile.
func effective(f api.InstanceFull, key string) string {
	if v, ok := f.ExpandedConfig[key]; ok {
		return v
	}
	return f.Config[key]
}

func stampOf(config map[string]string) *containerbroker.Stamp {
	if config[keyNamespace] == "" {
		return nil
	}
	return &containerbroker.Stamp{
		Namespace: config[keyNamespace], UID: config[keyUID], Token: config[keyToken], Record: config[keyRecord],
		Store: config[keyStore],
	}
}

// debianArch maps LXD's architecture names to Debian's where they differ.
var debianArch = map[string]string{"x86_64": "amd64", "i686": "i386", "aarch64": "arm64", "ppc64le": "ppc64el"}

func archOf(name string) string {
	if debian, ok := debianArch[name]; ok {
		return debian
	}
	return name
}

func statusOf(code api.StatusCode) containerbroker.Status {
	switch code {
	case api.Running, api.Started, api.Ready, api.Thawed:
		return containerbroker.StatusRunning
	case api.Stopped:
		return containerbroker.StatusStopped
	case api.Frozen:
		return containerbroker.StatusFrozen
	case api.Error:
		return containerbroker.StatusError
	case api.Starting, api.Stopping, api.Aborting, api.Freezing, api.Pending:
		return containerbroker.StatusBusy
	}
	return containerbroker.StatusUnknown
}

func isTrue(v string) bool {
	switch strings.ToLower(v) {
	case "true", "1", "yes", "on":
		return true
	}
	return false
}

// cpusOf reads limits.cpu, which is a number or a set such as 0-1,3. It returns
// 0 if there is no limit and -1 if the value is unreadable.
func cpusOf(v string) int {
	if v == "" {
		return 0
	}
	if n, err := strconv.Atoi(v); err == nil && n > 0 {
		return n
	}
	total := 0
	for part := range strings.SplitSeq(v, ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return -1
		}
		b := a
		if isRange {
			if b, err = strconv.ParseUint(last, 10, 16); err != nil || b < a {
				return -1
			}
		}
		total += int(b - a + 1)
	}
	return total
}

// units are LXD's byte suffixes.
var units = map[string]int64{
	"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60,
}

// bytesOf reads a size in bytes. It returns 0 if there is no limit and -1 if
// the value is unreadable (e.g. a percentage).
func bytesOf(v string) int64 {
	if v == "" {
		return 0
	}
	digits := strings.TrimRightFunc(v, func(r rune) bool { return !unicode.IsDigit(r) })
	unit, ok := units[strings.TrimSpace(v[len(digits):])]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || n < 0 || n > (1<<63-1)/unit {
		return -1
	}
	return n * unit
}

// rootDisk returns the name of the disk device at / and the device, or "" and
// nil if there is none.
func rootDisk(devices map[string]map[string]string) (string, map[string]string) {
	for name, device := range devices {
		if device["type"] == "disk" && device["path"] == "/" {
			return name, device
		}
	}
	return "", nil
}

// addressesOf returns the global addresses, IPv4 first, each family sorted.
func addressesOf(s *api.InstanceState) []string {
	var found []netip.Addr
	for name, network := range s.Network {
		if name == "lo" {
			continue
		}
		for _, a := range network.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err == nil && a.Scope == "global" && ip.Zone() == "" {
				found = append(found, ip.Unmap())
			}
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	found = slices.Compact(found)
	var texts []string
	for _, ip := range found {
		texts = append(texts, ip.String())
	}
	return texts
}
