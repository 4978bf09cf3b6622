package kvm

import (
	"context"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strings"

	libvirt "github.com/digitalocean/go-libvirt"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// replaceNote returns the domain's metadata, with hostler's element replaced by
// def.note. Elements of other tools stay unchanged.
func replaceNote(def *definition) (string, error) {
	text, err := def.note.text()
	if err != nil || def.domain.Metadata == nil {
		return text, err
	}
	const open, end = "<metadata>", "</metadata>"
	document := open + def.domain.Metadata.XML + end
	decoder := xml.NewDecoder(strings.NewReader(document))
	kept := strings.Builder{}
	depth := 0
	from := int64(len(open)) // where the text to keep begins
	for {
		before := decoder.InputOffset()
		token, err := decoder.Token()
		if err != nil {
			break
		}
		switch element := token.(type) {
		case xml.StartElement:
			depth++
			if depth == 2 && element.Name.Space == metadataURI {
				kept.WriteString(document[from:before])
				if err := decoder.Skip(); err != nil {
					return "", fault.New(fault.Transient, "cannot read the domain's metadata: %v", err)
				}
				depth--
				from = decoder.InputOffset()
			}
		case xml.EndElement:
			depth--
			if depth == 0 {
				kept.WriteString(document[from:before])
			}
		}
	}
	return strings.TrimSpace(kept.String()) + text, nil
}

// Stamp implements containerbroker.Stamper. If the instance belonged to another
// machine, the interfaces that hostler made for that machine become the
// instance's own (note.Left).
func (d *Driver) Stamp(ctx context.Context, name string, seen *containerbroker.Stamp, s containerbroker.Stamp) error {
	return fault.Explain(d.stamp(ctx, name, seen, s), "cannot stamp instance %q", name)
}

func (d *Driver) stamp(ctx context.Context, name string, seen *containerbroker.Stamp, s containerbroker.Stamp) error {
	if err := checkStamp(s); err != nil {
		return err
	}
	return d.mark(ctx, name, func(c *conn, dom libvirt.Domain, def definition) (err error) {
		n := def.note
		if err := containerbroker.MayStamp(n.stamp(), seen, s); err != nil {
			return err
		}
		if n == nil {
			if n, err = d.recovered(c, def); err != nil {
				return err
			}
		}
		key, err := d.sealKey(ctx, c, s.Namespace, true)
		if err != nil {
			return err
		}
		if n.UID != s.UID {
			n.Left, n.Addresses = nil, nil
			_, at := foundNICs(def.domain.Devices.Interfaces, def.domain.UUID)
			for _, name := range slices.Sorted(maps.Keys(at)) {
				if _, ours := named(at[name].Alias, aliasNIC); ours {
					n.Left = append(n.Left, name)
				}
			}
		}
		n.Namespace, n.UID, n.Token, n.Store, n.Domain = s.Namespace, s.UID, s.Token, s.Store, def.domain.UUID
		if n.Record, err = seal(key, s.Record); err != nil {
			return fault.New(fault.Invalid, "cannot seal the record: %v", err)
		}
		return setNote(c, dom, *n)
	})
}

// Unstamp implements containerbroker.Stamper. A domain that does not exist
// counts as unstamped.
func (d *Driver) Unstamp(ctx context.Context, name string, seen containerbroker.Stamp) error {
	err := d.mark(ctx, name, func(c *conn, dom libvirt.Domain, def definition) error {
		if err := containerbroker.MayUnstamp(def.note.stamp(), seen); err != nil {
			return err
		}
		if def.note == nil {
			return nil
		}
		return setMetadata(c, dom, nil)
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot release instance %q: %w", name, err)
	}
	return nil
}

// mark changes a domain's note. Because libvirt has no conditional requests,
// mark looks the domain up by name once, and then reads and changes the domain
// by its UUID. So it never changes another domain that has since taken the
// name.
func (d *Driver) mark(ctx context.Context, name string, change func(*conn, libvirt.Domain, definition) error) error {
	c, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	dom, err := c.domain(name)
	if err != nil {
		return err
	}
	def, err := readDefinition(c, dom, xmlInactive)
	if err != nil {
		return err
	}
	defer d.changed(dom.UUID)
	return change(c, dom, def)
}
