package kvm

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"strings"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// metadataURI names our element among a domain's metadata, metadataKey is the
// prefix that libvirt writes for it.
const (
	metadataURI = "https://hostler.invalid/libvirt/1"
	metadataKey = "hostler"
)

// maxRecord bounds Stamp.Record in bytes.
const maxRecord = 48 << 10

// note is what a domain's metadata says: the stamp, and what else of the
// declaration a domain has no word for. libvirt shows metadata to every local
// user: the record is sealed, and of user-data only a keyed digest is kept.
type note struct {
	Namespace, UID, Token, Store string
	// Domain is the UUID of the domain that it was written for: a clone made by
	// hand has the note with a UUID of its own. Empty in notes of old.
	Domain string
	// Record is the stamp's, sealed.
	Record string
	// Making is set until all that belongs to the instance is there.
	Making bool
	// Image is the digest of the disk it was made from, Created the time in
	// nanoseconds since 1970.
	Image   string
	Created int64
	Pool    string
	// RootDisk is the size of the root disk in bytes.
	RootDisk int64
	// UserData is a keyed digest of what the guest is told, NetworkConfig is
	// what it is told of its network.
	UserData, NetworkConfig string
	// Left names the interfaces that bear a name of ours and belong to the
	// instance all the same: what it was given before it was let go.
	Left []string
	// Sizes are those that the disks of ours had when the guest was given them
	// or was told last, in bytes, by their names.
	Sizes map[string]int64
}

// element is a note as XML.
type element struct {
	XMLName       xml.Name `xml:"https://hostler.invalid/libvirt/1 instance"`
	Namespace     string   `xml:"namespace,attr"`
	UID           string   `xml:"uid,attr"`
	Token         string   `xml:"token,attr"`
	Store         string   `xml:"store,attr,omitempty"`
	Domain        string   `xml:"domain,attr,omitempty"`
	Making        bool     `xml:"making,attr,omitempty"`
	Image         string   `xml:"image,attr,omitempty"`
	Created       int64    `xml:"created,attr,omitempty"`
	Pool          string   `xml:"pool,attr,omitempty"`
	RootDisk      int64    `xml:"root-disk,attr,omitempty"`
	UserData      string   `xml:"user-data,attr,omitempty"`
	Left          string   `xml:"left,attr,omitempty"`
	Sizes         string   `xml:"sizes,attr,omitempty"`
	Record        string   `xml:"record,omitempty"`
	NetworkConfig string   `xml:"network-config,omitempty"`
}

func (n note) element() element {
	return element{
		Namespace: n.Namespace, UID: n.UID, Token: n.Token, Store: n.Store, Domain: n.Domain, Making: n.Making, Image: n.Image, Created: n.Created,
		Pool: n.Pool, RootDisk: n.RootDisk, UserData: n.UserData, Record: n.Record, Left: strings.Join(n.Left, " "),
		Sizes: writeSizes(n.Sizes),
		// XML keeps no line ends as they are, and libvirt indents what it shows.
		NetworkConfig: base64.StdEncoding.EncodeToString([]byte(n.NetworkConfig)),
	}
}

// text is the element as libvirt is given it.
func (n note) text() (string, error) {
	data, err := xml.Marshal(n.element())
	if err != nil {
		return "", fault.New(fault.Invalid, "cannot write the stamp: %v", err)
	}
	return string(data), nil
}

// noteFor finds the note of the domain with that UUID among its metadata; nil:
// there is none, or none that can be read, or that of the domain from which
// this one was cloned.
func noteFor(uuid, metadata string) *note {
	n := noteOf(metadata)
	if n == nil || n.Domain != "" && !strings.EqualFold(n.Domain, uuid) {
		return nil
	}
	return n
}

// noteOf reads our element among a domain's metadata.
func noteOf(metadata string) *note {
	var all struct {
		Ours []element `xml:"https://hostler.invalid/libvirt/1 instance"`
	}
	if xml.Unmarshal([]byte("<metadata>"+metadata+"</metadata>"), &all) != nil || len(all.Ours) != 1 {
		return nil
	}
	e := all.Ours[0]
	network, err := base64.StdEncoding.DecodeString(strings.TrimSpace(e.NetworkConfig))
	if e.Namespace == "" || err != nil {
		return nil
	}
	return &note{
		Namespace: e.Namespace, UID: e.UID, Token: e.Token, Store: e.Store, Domain: e.Domain, Making: e.Making, Image: e.Image, Created: e.Created,
		Pool: e.Pool, RootDisk: e.RootDisk, UserData: e.UserData, Record: strings.TrimSpace(e.Record), NetworkConfig: string(network),
		Left: strings.Fields(e.Left), Sizes: readSizes(e.Sizes),
	}
}

// checkStamp refuses what cannot be found again.
func checkStamp(s containerbroker.Stamp) error {
	switch {
	case s.Namespace == "" || s.UID == "":
		return fault.New(fault.Invalid, "the stamp has no namespace or no uid")
	case len(s.Record) > maxRecord:
		return fault.New(fault.Invalid, "its record has %d bytes, the limit is %d", len(s.Record), maxRecord)
	}
	for _, text := range []string{s.Namespace, s.UID, s.Token, s.Store} {
		if clean(text, 256) != text {
			return fault.New(fault.Invalid, "the stamp has unprintable characters")
		}
	}
	return nil
}

// stamp is the stamp in the note, without its record; nil: there is none.
func (n *note) stamp() *containerbroker.Stamp {
	if n == nil {
		return nil
	}
	return &containerbroker.Stamp{Namespace: n.Namespace, UID: n.UID, Token: n.Token, Store: n.Store}
}

// owned says that the note bears the stamp's owner.
func (n *note) owned(s containerbroker.Stamp) bool {
	return n != nil && n.Namespace == s.Namespace && n.UID == s.UID
}

// domainUUID is that of the instance which a stamp's attempt makes: the same
// attempt defines the same domain again, another one is refused by libvirt.
func domainUUID(s containerbroker.Stamp, name string) string {
	return uuidOf("instance", s.Namespace, s.UID, s.Token, name)
}

// uuidOf makes a UUID (RFC 9562, version 8) of words.
func uuidOf(words ...string) string {
	h := sha256.New()
	for _, w := range words {
		_, _ = fmt.Fprintf(h, "%d:%s", len(w), w)
	}
	id := h.Sum(nil)[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	text := hex.EncodeToString(id)
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// macOf is the MAC address of an interface that was given none.
func macOf(uuid, name string) string {
	sum := sha256.Sum256([]byte(uuid + "/" + name))
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}
