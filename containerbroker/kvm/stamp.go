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

// metadataURI is the XML namespace of hostler's element in a domain's metadata.
// metadataKey is the prefix that libvirt writes for it.
const (
	metadataURI = "https://hostler.invalid/libvirt/1"
	metadataKey = "hostler"
)

// note is hostler's element in a domain's metadata. It holds the stamp and the
// parts of the declaration that a domain cannot express. libvirt shows metadata
// to every local user, so the record is encrypted, and user-data is kept only
// as a keyed digest.
type note struct {
	Namespace, UID, Token, Store string
	// Domain is the UUID of the domain for which the note was written. A clone
	// has a copy of the note but another UUID. Notes of old versions have no
	// Domain.
	Domain string
	// Record is the encrypted record of the stamp.
	Record string
	// Making is set until the instance is complete.
	Making bool
	// Image is the digest of the image that the instance was made from. Created
	// is the time of creation, in nanoseconds since 1970.
	Image   string
	Created int64
	Pool    string
	// RootDisk is the size of the root disk in bytes.
	RootDisk int64
	// UserData is a keyed digest of the user-data. NetworkConfig is the network
	// configuration in plain text.
	UserData, NetworkConfig string
	// PlainProxies is true if no proxy in the user-data has a user name or
	// password. In notes of old versions it is always false.
	PlainProxies bool
	// Left names the interfaces that hostler made for an earlier machine. They
	// belong to the instance, because another machine has adopted the instance.
	Left []string
	// Addresses maps the names of hostler's interfaces to the addresses that the
	// guest learns when it starts, separated by spaces. In notes of old versions it
	// is empty.
	Addresses map[string]string
	// Sizes maps the names of hostler's disks to the sizes, in bytes, that the
	// guest knows. The guest learns a size when the disk is plugged in or the
	// size is announced.
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
	PlainProxies  bool     `xml:"plain-proxies,attr,omitempty"`
	Left          string   `xml:"left,attr,omitempty"`
	Addresses     string   `xml:"addresses,attr,omitempty"`
	Sizes         string   `xml:"sizes,attr,omitempty"`
	Record        string   `xml:"record,omitempty"`
	NetworkConfig string   `xml:"network-config,omitempty"`
}

func (n note) element() element {
	return element{
		Namespace: n.Namespace, UID: n.UID, Token: n.Token, Store: n.Store, Domain: n.Domain, Making: n.Making, Image: n.Image, Created: n.Created,
		Pool: n.Pool, RootDisk: n.RootDisk, UserData: n.UserData, PlainProxies: n.PlainProxies, Record: n.Record, Left: strings.Join(n.Left, " "),
		Addresses: writeAddresses(n.Addresses), Sizes: writeSizes(n.Sizes),
		// Use base64, because XML normalises line ends and libvirt indents its
		// output.
		NetworkConfig: base64.StdEncoding.EncodeToString([]byte(n.NetworkConfig)),
	}
}

// text returns the note as XML for libvirt.
func (n note) text() (string, error) {
	data, err := xml.Marshal(n.element())
	if err != nil {
		return "", fault.New(fault.Invalid, "cannot write the stamp: %v", err)
	}
	return string(data), nil
}

// noteFor returns the note of the domain with that UUID. It returns nil if
// there is no readable note, or if the note belongs to the domain from which
// this domain was cloned.
func noteFor(uuid, metadata string) *note {
	n := noteOf(metadata)
	if n == nil || n.Domain != "" && !strings.EqualFold(n.Domain, uuid) {
		return nil
	}
	return n
}

// noteOf reads hostler's element in a domain's metadata. It returns nil if
// there is none or if it is unreadable.
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
		Pool: e.Pool, RootDisk: e.RootDisk, UserData: e.UserData, PlainProxies: e.PlainProxies, Record: strings.TrimSpace(e.Record), NetworkConfig: string(network),
		Left: strings.Fields(e.Left), Addresses: readAddresses(e.Addresses), Sizes: readSizes(e.Sizes),
	}
}

// checkStamp refuses a stamp that libvirt could not store unchanged.
func checkStamp(s containerbroker.Stamp) error {
	if err := s.Check(); err != nil {
		return err
	}
	for _, text := range []string{s.Namespace, s.UID, s.Token, s.Store} {
		if clean(text, 256) != text {
			return fault.New(fault.Invalid, "the stamp has unprintable characters")
		}
	}
	return nil
}

// stamp returns the stamp in the note, without the record. It returns nil if
// the note is nil.
func (n *note) stamp() *containerbroker.Stamp {
	if n == nil {
		return nil
	}
	return &containerbroker.Stamp{Namespace: n.Namespace, UID: n.UID, Token: n.Token, Store: n.Store}
}

// owned reports whether the note has the namespace and uid of the stamp.
func (n *note) owned(s containerbroker.Stamp) bool {
	return n != nil && n.Namespace == s.Namespace && n.UID == s.UID
}

// domainUUID derives the UUID of an instance from its create attempt. A
// repeated call of one attempt defines the same domain again. If another
// attempt uses the same name, libvirt refuses its domain.
func domainUUID(s containerbroker.Stamp, name string) string {
	return uuidOf("instance", s.Namespace, s.UID, s.Token, name)
}

// uuidOf derives a UUID (RFC 9562, version 8) from words.
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

// macOf derives the MAC address of an interface without a declared address.
func macOf(uuid, name string) string {
	sum := sha256.Sum256([]byte(uuid + "/" + name))
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}
