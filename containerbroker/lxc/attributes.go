package lxc

import (
	"encoding/binary"
)

// capability returns a struct vfs_ns_cap_data for the guest's root. Revision 2
// has no root id and belongs to the host's root; revision 3 has one.
func (s shifter) capability(value []byte) []byte {
	const flags, revision2, revision3 = 0x00ffffff, 0x02000000, 0x03000000
	if len(value) != 20 && len(value) != 24 {
		return value
	}
	magic := binary.LittleEndian.Uint32(value) & flags
	if s.back {
		out := append([]byte(nil), value[:20]...)
		binary.LittleEndian.PutUint32(out, magic|revision2)
		return out
	}
	out := make([]byte, 24)
	copy(out, value[:20])
	binary.LittleEndian.PutUint32(out, magic|revision3)
	binary.LittleEndian.PutUint32(out[20:], s.ids.FirstUser)
	return out
}

// acl shifts the ids of an ACL, whose entries of 8 bytes (tag, rights, id) follow
// a version of 4 bytes. Tag 2 is a user, tag 8 a group.
func (s shifter) acl(value []byte) []byte {
	out := append([]byte(nil), value...)
	for at := 4; at+8 <= len(out); at += 8 {
		id := binary.LittleEndian.Uint32(out[at+4:])
		switch binary.LittleEndian.Uint16(out[at:]) {
		case 2:
			binary.LittleEndian.PutUint32(out[at+4:], s.id(id, s.ids.FirstUser))
		case 8:
			binary.LittleEndian.PutUint32(out[at+4:], s.id(id, s.ids.FirstGroup))
		}
	}
	return out
}
