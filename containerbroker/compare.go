package containerbroker

import (
	"maps"
	"slices"
	"strings"

	"hostler/containerbroker/cloudinit"
	"hostler/internal/fault"
)

// fieldNIC returns the name of an interface's field, e.g. "nic eth0".
func fieldNIC(name string) string { return prefixNIC + name }

// FieldDisk returns the name of a disk's field, e.g. "disk data".
func FieldDisk(name string) string { return prefixDisk + name }

// NICOf returns the name of the interface if the field is an interface.
func NICOf(field string) (name string, ok bool) { return strings.CutPrefix(field, prefixNIC) }

// DiskOf returns the name of the disk if the field is a disk.
func DiskOf(field string) (name string, ok bool) { return strings.CutPrefix(field, prefixDisk) }

// IsDevice reports whether the field is an interface or a disk.
func IsDevice(field string) bool {
	_, nic := NICOf(field)
	_, disk := DiskOf(field)
	return nic || disk
}

// Rule returns the impact of a change as a driver knows it, and the reason for
// that impact. Without a rule, or if it returns an empty impact, the table of
// fields decides.
type Rule func(field string, want Settings, i Instance) (Impact, string)

// Compare returns the changes that turn an instance into want, ordered by
// field. A setting differs if its stored or its running value differs from
// want. If the stored value is right and the running value needs a restart,
// only a device is returned, because other settings take effect at the next
// start anyway.
func Compare(want Settings, i Instance, rule Rule) []Change {
	now := i.Now()
	var changes []Change
	for _, f := range fields {
		stored, runs := f.equal(&want, &i.Stored), f.equal(&want, &now)
		if stored && runs || f.ofGuest && want.KeepGuest || f.optional && (f.text(&want) == "" || f.text(&i.Stored) == "") {
			continue
		}
		c := Change{Field: f.name, From: f.text(&now), To: f.text(&want), Stored: stored}
		if runs {
			c.From = f.text(&i.Stored)
		}
		if f.hidden {
			c.To = "(changed)"
		}
		if c.Impact, c.Reason = impactOf(f.name, want, i, rule); !stored || c.Impact == ImpactLive {
			changes = append(changes, c)
		}
	}
	changes = append(changes, devices(FieldDisk, want.Disks, i.Stored.Disks, now.Disks, want.Sizes, i.Stored.Sizes)...)
	changes = append(changes, devices(fieldNIC, want.NICs, i.Stored.NICs, now.NICs, nil, nil)...)
	slices.SortStableFunc(changes, func(a, b Change) int { return strings.Compare(a.Field, b.Field) })
	replaces := replaced(changes, now)
	room := Room{Devices: Unlimited}
	if i.Room != nil {
		room = *i.Room
	}
	for n := range changes {
		c := &changes[n]
		switch {
		case !IsDevice(c.Field):
		case replaces && (c.From == "" || c.To == "") && strings.HasPrefix(c.Field, prefixNIC):
			c.Impact, c.Reason = ImpactRestart, "an interface takes the place of another, which ends the guest's connections"
		case !room.place(*c, now):
			c.Impact, c.Reason = ImpactRestart, "the running guest has no free slot for another device"
		case readdressed(c.Field, want, i):
			c.Impact, c.Reason = ImpactRestart, "the guest learns its address when it starts"
		case replugged(c.Field, want, now):
			c.Impact, c.Reason = ImpactRestart, "the interface is unplugged and plugged in again, which ends the guest's connections"
		default:
			c.Impact, c.Reason = impactOf(c.Field, want, i, rule)
		}
	}
	return changes
}

// Refused returns the result of Diff for a machine that Update refuses with err.
// Without this change Update would not be called, and the machine would seem to be
// as declared.
func Refused(err error) []Change {
	return []Change{{Field: FieldDeclaration, To: "refused", Impact: ImpactLive, Reason: err.Error()}}
}

// readdressed reports whether an interface of a running guest loses an address and
// gets another, e.g. that of another network. Until its next start the guest uses
// the former address, which the host's firewall permits only as long as the change
// waits.
func readdressed(field string, want Settings, i Instance) bool {
	name, is := NICOf(field)
	gets := strings.Fields(want.Addresses[name])
	return is && i.Now().NICs[name] != "" && len(gets) > 0 &&
		slices.ContainsFunc(strings.Fields(i.Stored.Addresses[name]), func(had string) bool { return !slices.Contains(gets, had) })
}

// replaced reports whether a running guest loses an interface and gets another, e.g.
// because it is declared under another name. The guest configures the new one when it
// starts, and keeps the old one until then.
func replaced(changes []Change, now Settings) bool {
	loses, gets := false, false
	for _, c := range changes {
		name, is := NICOf(c.Field)
		loses = loses || is && c.To == "" && now.NICs[name] != ""
		gets = gets || is && c.From == ""
	}
	return loses && gets
}

// replugged reports whether an interface of a running guest stays on its bridge and gets
// another MTU or another name in the guest. The drivers replace such an interface.
func replugged(field string, want, now Settings) bool {
	name, _ := NICOf(field)
	bridge, has := fixedOf(now.NICs[name])
	stays, gets := fixedOf(want.NICs[name])
	return bridge != "" && bridge == stays && !slices.Equal(has, gets)
}

// impactOf returns the impact of a change on a running instance.
func impactOf(name string, want Settings, i Instance, rule Rule) (Impact, string) {
	if rule != nil {
		if impact, why := rule(name, want, i); impact != "" {
			return impact, why
		}
	}
	for _, f := range fields {
		if f.name == name && f.impact != nil {
			return f.impact(want, i.Now())
		}
	}
	return ImpactLive, ""
}

// CheckUpdate refuses, with fault.Invalid, changes that no update can make.
func CheckUpdate(changes []Change, want Settings, i Instance, rule Rule) error {
	for _, c := range changes {
		if impact, why := impactOf(c.Field, want, i, rule); impact == ImpactRecreate {
			return fault.New(fault.Invalid, "%s: %s", c.Field, why)
		}
	}
	return nil
}

// devices compares the descriptions of disks or interfaces. field makes a
// field's name. sizes are the wanted sizes, known the instance's.
func devices(field func(string) string, want, stored, now map[string]string, sizes, known map[string]int64) []Change {
	all := map[string]string{}
	for _, texts := range []map[string]string{want, stored, now} {
		maps.Copy(all, texts)
	}
	var changes []Change
	for name := range all {
		has := stored[name]
		c := Change{Field: field(name), From: describe(has, now[name]), To: want[name]}
		grown := c.From != "" && c.To != "" && sizes[name] != 0 && sizes[name] != known[name]
		if c.To == has && has == now[name] && !grown {
			continue
		}
		if grown {
			c.To += ", of " + sizeText(sizes[name])
			if known[name] > 0 {
				c.From += ", of " + sizeText(known[name])
			}
		}
		changes = append(changes, c)
	}
	return changes
}

// describe returns, for the user, the description of a stored device. It adds
// the description of the running device if the two differ.
func describe(stored, running string) string {
	switch {
	case stored == running:
		return stored
	case stored == "":
		return running + ", while it runs"
	case running == "":
		return stored + ", not while it runs"
	}
	return stored + ", " + running + " while it runs"
}

// place takes a slot for a device that c adds, or frees the slot of a device
// that c removes. It returns false if no slot is free. An update makes the
// changes in the same order as the calls of place().
func (r *Room) place(c Change, now Settings) bool {
	name, nic := NICOf(c.Field)
	has := now.NICs[name] != ""
	if !nic {
		name, _ = DiskOf(c.Field)
		has = now.Disks[name] != ""
	}
	switch {
	case r.Devices == Unlimited || has == (c.To != ""):
	case has:
		r.Devices++
	case r.Devices == 0:
		return false
	default:
		r.Devices--
	}
	return true
}

// ComparableUserData returns the user-data to compare with an instance's
// user-data had. It returns had if want differs only by passwords of proxies,
// which earlier versions wrote into guests, so that no guest is recreated for
// them. Otherwise it returns want.
func ComparableUserData(m Machine, want, had string) string {
	if want != had && cloudinit.OnlyProxyUsersDiffer(m.Guest, had) {
		return had
	}
	return want
}
