package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// listing holds the rows of a kind in all their printed forms.
type listing struct {
	kind  string
	names []string
	// notices name the hypervisors that could not be read.
	notices []string
	// data returns the array to print as JSON or YAML, with an element for each
	// index in keep.
	data func(keep []int) any
	view func(keep []int, now time.Time, wide bool) *table
	csv  func(keep []int) *table
}

// list asks the agent for the rows of a kind.
func list(ctx context.Context, agent agent, kind string) (*listing, error) {
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

// listSent parses rows of a kind that the agent sent.
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

// listRows parses rows of type T and calls of() to make their listing.
func listRows[T any](kind string, sent json.RawMessage, of func([]T) *listing) (*listing, error) {
	var rows []T
	if err := json.Unmarshal(sent, &rows); err != nil {
		return nil, fmt.Errorf("cannot read the agent's %s: %w", plural(kind), err)
	}
	return of(rows), nil
}

func machineListing(rows []client.Machine) *listing {
	return newListing(spec.KindMachine, rows, func(m client.Machine) string { return m.Name }, machineTable, csvMachines)
}

func declarationListing(rows []client.Declaration) *listing {
	return newListing(spec.KindDeclaration, rows, func(d client.Declaration) string { return d.Name }, declarationTable, csvDeclarations)
}

func imageListing(rows []client.Image) *listing {
	return newListing(kindImage, rows, imageName, imageTable, csvImages)
}

func attachmentListing(rows []client.AttachmentRow) *listing {
	return newListing(kindAttachment, rows, func(r client.AttachmentRow) string { return r.Name }, attachmentTable, csvAttachments)
}

func blockDeviceListing(rows []client.BlockDevice) *listing {
	return newListing(kindBlockDevice, rows, func(d client.BlockDevice) string { return d.Name }, blockDeviceTable, csvBlockDevices)
}

// shortDigest is the number of hex digits of a digest that can stand for an
// image's name.
const shortDigest = 12

// imageName returns the reference. For an image without a reference, which only
// a hypervisor keeps, it returns the beginning of the digest.
func imageName(i client.Image) string {
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

// pick returns the rows with the indexes in keep. It never returns nil, so that
// an empty list prints as [].
func pick[T any](rows []T, keep []int) []T {
	out := make([]T, 0, len(keep))
	for _, i := range keep {
		out = append(out, rows[i])
	}
	return out
}

// find returns the indexes of the given names, in this order, and the names
// that do not exist. Without names, it returns all indexes.
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

// absent returns an error that names the missing rows and similar existing
// names.
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
