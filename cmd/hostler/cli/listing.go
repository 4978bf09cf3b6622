package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/api"
	"hostler/agent/spec"
)

// listing is the rows of one kind in all the forms they are printed in.
type listing struct {
	kind  string
	names []string
	// notices say what could not be read.
	notices []string
	// data is what JSON and YAML print: an array, one element per name.
	data func(keep []int) any
	view func(keep []int, now time.Time, wide bool) *table
	csv  func(keep []int) *table
}

// list asks the agent for the rows of one kind.
func list(ctx context.Context, agent Agent, kind string) (*listing, error) {
	switch kind {
	case spec.KindMachine:
		rows, err := agent.Machines(ctx)
		return machineListing(rows), err
	case spec.KindDeclaration:
		rows, err := agent.Declarations(ctx)
		return declarationListing(rows), err
	case kindImage:
		rows, notices, err := agent.Images(ctx)
		l := imageListing(rows)
		l.notices = notices
		return l, err
	}
	sent, err := agent.Get(ctx, plural(kind))
	if err != nil {
		return nil, err
	}
	return listSent(kind, sent)
}

// listSent reads the rows of one kind as the agent sent them.
func listSent(kind string, sent json.RawMessage) (*listing, error) {
	switch kind {
	case spec.KindMachine:
		return listRows(kind, sent, machineListing)
	case spec.KindDeclaration:
		return listRows(kind, sent, declarationListing)
	case kindImage:
		return listRows(kind, sent, imageListing)
	case kindAttachment:
		return listRows(kind, sent, attachmentListing)
	case kindBlockDevice:
		return listRows(kind, sent, blockDeviceListing)
	}
	return listAttachables(kind, sent)
}

// listRows reads rows of a type and makes the listing of them.
func listRows[T any](kind string, sent json.RawMessage, of func([]T) *listing) (*listing, error) {
	var rows []T
	if err := json.Unmarshal(sent, &rows); err != nil {
		return nil, fmt.Errorf("cannot read the agent's %s: %w", plural(kind), err)
	}
	return of(rows), nil
}

func machineListing(rows []api.Machine) *listing {
	return newListing(spec.KindMachine, rows, func(m api.Machine) string { return m.Name }, machineTable, csvMachines)
}

func declarationListing(rows []api.Declaration) *listing {
	return newListing(spec.KindDeclaration, rows, func(d api.Declaration) string { return d.Name }, declarationTable, csvDeclarations)
}

func imageListing(rows []api.Image) *listing {
	return newListing(kindImage, rows, imageName, imageTable, csvImages)
}

func attachmentListing(rows []api.AttachmentRow) *listing {
	return newListing(kindAttachment, rows, func(r api.AttachmentRow) string { return r.Name }, attachmentTable, csvAttachments)
}

func blockDeviceListing(rows []api.BlockDevice) *listing {
	return newListing(kindBlockDevice, rows, func(d api.BlockDevice) string { return d.Name }, blockDeviceTable, csvBlockDevices)
}

// shortDigest is how much of a digest names an image, in hex digits.
const shortDigest = 12

// imageName is the reference, or the digest's beginning for an image that a
// hypervisor keeps without one.
func imageName(i api.Image) string {
	if i.Reference == "" {
		return i.Digest[:min(shortDigest, len(i.Digest))]
	}
	return i.Reference
}

func listAttachables(kind string, sent json.RawMessage) (*listing, error) {
	var raw []json.RawMessage
	var rows []attachable
	if err := json.Unmarshal(sent, &raw); err != nil {
		return nil, fmt.Errorf("cannot read the agent's %s: %w", plural(kind), err)
	}
	if err := json.Unmarshal(sent, &rows); err != nil {
		return nil, fmt.Errorf("cannot read the agent's %s: %w", plural(kind), err)
	}
	order := every(len(rows))
	slices.SortStableFunc(order, func(a, b int) int { return natural(rows[a].Name, rows[b].Name) })
	raw = pick(raw, order)
	l := newListing(kind, rows, func(r attachable) string { return r.Name },
		func(rows []attachable, now time.Time, wide bool) *table {
			return attachableTable(rows, kind == spec.KindNetwork, now, wide)
		},
		func(rows []attachable) *table { return csvAttachables(rows, kind == spec.KindNetwork) })
	l.data = func(keep []int) any { return pick(raw, keep) }
	return l, nil
}

func newListing[T any](kind string, rows []T, name func(T) string,
	view func([]T, time.Time, bool) *table, csv func([]T) *table,
) *listing {
	rows = slices.SortedStableFunc(slices.Values(rows), func(a, b T) int { return natural(name(a), name(b)) })
	l := &listing{kind: kind}
	for _, r := range rows {
		l.names = append(l.names, name(r))
	}
	l.data = func(keep []int) any { return pick(rows, keep) }
	l.view = func(keep []int, now time.Time, wide bool) *table { return view(pick(rows, keep), now, wide) }
	l.csv = func(keep []int) *table { return csv(pick(rows, keep)) }
	return l
}

// pick never returns nil, so that nothing prints as [].
func pick[T any](rows []T, keep []int) []T {
	out := make([]T, 0, len(keep))
	for _, i := range keep {
		out = append(out, rows[i])
	}
	return out
}

// find returns the places of the wanted names in the order asked (all of
// them without names), and the names that are not there.
func (l *listing) find(names []string) (keep []int, missing []string) {
	if len(names) == 0 {
		for i := range l.names {
			keep = append(keep, i)
		}
		return keep, nil
	}
	for _, n := range names {
		if i := slices.Index(l.names, n); i >= 0 {
			keep = append(keep, i)
		} else {
			missing = append(missing, n)
		}
	}
	return keep, missing
}

// absent says what is missing and what there is instead.
func (l *listing) absent(missing []string) *failure {
	var texts []string
	for _, n := range missing {
		text := fmt.Sprintf("there is no %s %q", l.kind, n)
		if near := closest(n, l.names, 3); len(near) > 0 {
			text += ", did you mean " + strings.Join(near, " or ") + "?"
		}
		texts = append(texts, text)
	}
	f := fail(exitNotFound, "%s", strings.Join(texts, "\n"))
	switch n := len(l.names); {
	case n == 0:
		f.mend = "there are no " + plural(l.kind)
	case n <= 8:
		f.mend = plural(l.kind) + ": " + strings.Join(l.names, ", ")
	default:
		f.mend = fmt.Sprintf("`hostler get %s` lists the %d there are", plural(l.kind), n)
	}
	return f
}
