package blockdevice

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf16"
)

// look tries to recognise a kind of content.
type look func(*prober) (Signature, bool)

// looks holds every known kind. The layouts come from the documentation of the
// formats and from kernel headers; offsets are in bytes.
var looks = []look{
	luks, gpt, ext, xfs, btrfs, zfs, swap, lvm, mdraid, vfat, ntfs, exfat, iso, squashfs, f2fs, erofs, bcache, qcow2, mbr,
	simple("reiserfs", useFilesystem, 0x10034, "ReIsEr", 0x10054, 0x10064, 16),
	simple("jfs", useFilesystem, 0x8000, "JFS1", 0x8088, 0x8098, 16),
	simple("ocfs2", useFilesystem, 0x2000, "OCFSV2", 0x2110, 0x20d0, 64),
	simple("gfs2", useFilesystem, 0x10000, "\x01\x16\x19\x70", 0, 0, 0),
	simple("nilfs2", useFilesystem, 0x406, "\x34\x34", 0x498, 0x4a8, 80),
	simple("cramfs", useFilesystem, 0, "\x45\x3d\xcd\x28", 0, 48, 16),
	simple("romfs", useFilesystem, 0, "-rom1fs-", 0, 16, 16),
	simple("hfsplus", useFilesystem, 0x400, "H+", 0, 0, 0),
	simple("apfs", useFilesystem, 32, "NXSB", 72, 0, 0),
	simple("udf", useFilesystem, 0x8801, "NSR0", 0, 0, 0),
	simple("VMFS", useFilesystem, 0x200000, "\x5e\xf1\xab\x2f", 0, 0, 0),
	simple("BitLocker", useEncrypted, 3, "-FVE-FS-", 0, 0, 0),
	simple("DM_integrity", useMember, 0, "integrt\x00", 0, 0, 0),
	simple("ceph_bluestore", useMember, 0, "bluestore block device", 0, 0, 0),
	simple("vmdk", useDiskImage, 0, "KDMV", 0, 0, 0),
	simple("vhdx", useDiskImage, 0, "vhdxfile", 0, 0, 0),
}

// simple returns a look that recognises a magic text at an offset. uuid and
// label are the offsets of the UUID and the label, or 0 for none.
func simple(kind string, use Use, offset int64, magic string, uuid, label int64, labelSize int) look {
	return func(p *prober) (Signature, bool) {
		if !p.has(offset, magic) {
			return Signature{}, false
		}
		s := Signature{Type: kind, Use: use}
		if uuid > 0 {
			s.UUID = uuidText(p.at(uuid, 16))
		}
		if label > 0 {
			s.Label = text(p.at(label, labelSize))
		}
		return s, true
	}
}

func ext(p *prober) (Signature, bool) {
	b := p.at(1024, 256)
	le := binary.LittleEndian
	if le.Uint16(b[0x38:]) != 0xEF53 {
		return Signature{}, false
	}
	compat, incompat, readOnly := le.Uint32(b[0x5c:]), le.Uint32(b[0x60:]), le.Uint32(b[0x64:])
	const (
		journal, journalDevice = 0x4, 0x8
		// The features of ext3; any other feature means ext4.
		ext3Incompat, ext3ReadOnly = 0x2 | 0x4 | 0x10, 0x1 | 0x2 | 0x4
	)
	s := Signature{Type: "ext2", Use: useFilesystem, UUID: uuidText(b[0x68:0x78]), Label: text(b[0x78:0x88])}
	switch {
	case incompat&journalDevice != 0:
		s.Type, s.Use = "jbd", useMember
	case incompat&^ext3Incompat != 0 || readOnly&^ext3ReadOnly != 0:
		s.Type = "ext4"
	case compat&journal != 0:
		s.Type = "ext3"
	}
	return s, true
}

func xfs(p *prober) (Signature, bool) {
	b := p.at(0, 256)
	if string(b[:4]) != "XFSB" {
		return Signature{}, false
	}
	return Signature{Type: "xfs", Use: useFilesystem, UUID: uuidText(b[32:48]), Label: text(b[108:120]), Unfinished: b[126] != 0}, true
}

func btrfs(p *prober) (Signature, bool) {
	b := p.at(0x10000, 0x400)
	magic := string(b[0x40:0x48])
	if magic != "_BHRfS_M" && magic != "!BHRfS_M" {
		return Signature{}, false
	}
	// mkfs writes the final magic last.
	return Signature{Type: "btrfs", Use: useFilesystem, UUID: uuidText(b[0x20:0x30]), Label: text(b[0x12b:0x22b]), Unfinished: magic[0] == '!'}, true
}

func swap(p *prober) (Signature, bool) {
	for page := int64(4096); page <= 65536; page *= 2 {
		switch string(p.at(page-10, 10)) {
		case "SWAPSPACE2", "SWAP-SPACE":
			return Signature{Type: "swap", Use: useSwap, UUID: uuidText(p.at(1036, 16)), Label: text(p.at(1052, 16))}, true
		case "S1SUSPEND\x00", "S2SUSPEND\x00", "ULSUSPEND\x00", "LINHIB0001":
			return Signature{Type: "swsuspend", Use: useSwap}, true
		}
	}
	return Signature{}, false
}

func luks(p *prober) (Signature, bool) {
	if p.has(0, "LUKS\xba\xbe") {
		s := Signature{Type: "crypto_LUKS", Use: useEncrypted, UUID: text(p.at(168, 40))}
		if binary.BigEndian.Uint16(p.at(6, 2)) == 2 {
			s.Label = text(p.at(24, 48))
		}
		return s, true
	}
	// LUKS2 has a second header; its offset equals the size of the first.
	for offset := int64(0x4000); offset <= 0x400000; offset *= 2 {
		if p.has(offset, "SKUL\xba\xbe") {
			return Signature{Type: "crypto_LUKS", Use: useEncrypted, UUID: text(p.at(offset+168, 40))}, true
		}
	}
	return Signature{}, false
}

func lvm(p *prober) (Signature, bool) {
	for sector := range int64(4) {
		b := p.at(sector*512, 512)
		if string(b[:8]) != "LABELONE" || string(b[24:29]) != "LVM2 " {
			continue
		}
		s := Signature{Type: "LVM2_member", Use: useMember}
		if offset := int(binary.LittleEndian.Uint32(b[20:])); offset >= 32 && offset+32 <= 512 {
			s.UUID = lvmUUID(string(b[offset : offset+32]))
		}
		return s, true
	}
	return Signature{}, false
}

func lvmUUID(s string) string {
	var parts []string
	for _, n := range []int{6, 4, 4, 4, 4, 4, 6} {
		parts, s = append(parts, s[:n]), s[n:]
	}
	return text([]byte(strings.Join(parts, "-")))
}

func zfs(p *prober) (Signature, bool) {
	const label = 256 << 10
	end := p.size / label * label
	for _, start := range []int64{0, label, end - 2*label, end - label} {
		if start < 0 || start+label > p.size {
			continue
		}
		ring := p.at(start+128<<10, 128<<10)
		for at := 0; at < len(ring); at += 1024 {
			le, be := binary.LittleEndian.Uint64(ring[at:]), binary.BigEndian.Uint64(ring[at:])
			if le == 0x00bab10c || be == 0x00bab10c {
				return Signature{Type: "zfs_member", Use: useMember}, true
			}
		}
	}
	return Signature{}, false
}

func mdraid(p *prober) (Signature, bool) {
	// These are the offsets of the versions 1.1, 1.2, 1.0 and 0.90.
	for _, offset := range []int64{0, 4096, (p.size/512 - 16) &^ 7 * 512, p.size&^0xffff - 0x10000} {
		if offset < 0 {
			continue
		}
		b := p.at(offset, 64)
		le, be := binary.LittleEndian.Uint32(b), binary.BigEndian.Uint32(b)
		if le == 0xa92b4efc || be == 0xa92b4efc {
			s := Signature{Type: "linux_raid_member", Use: useMember}
			if binary.LittleEndian.Uint32(b[4:]) == 1 {
				s.UUID, s.Label = uuidText(b[16:32]), text(b[32:64])
			}
			return s, true
		}
	}
	return Signature{}, false
}

func bcache(p *prober) (Signature, bool) {
	switch string(p.at(4096+24, 16)) {
	case "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81":
		return Signature{Type: "bcache", Use: useMember, UUID: uuidText(p.at(4096+40, 16))}, true
	case "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef":
		return Signature{Type: "bcachefs", Use: useFilesystem, UUID: uuidText(p.at(4096+56, 16))}, true
	}
	return Signature{}, false
}

func f2fs(p *prober) (Signature, bool) {
	b := p.at(1024, 1200)
	if binary.LittleEndian.Uint32(b) != 0xF2F52010 {
		return Signature{}, false
	}
	return Signature{Type: "f2fs", Use: useFilesystem, UUID: uuidText(b[108:124]), Label: wide(b[124 : 124+1024])}, true
}

func erofs(p *prober) (Signature, bool) {
	b := p.at(1024, 128)
	if binary.LittleEndian.Uint32(b) != 0xE0F5E1E2 {
		return Signature{}, false
	}
	return Signature{Type: "erofs", Use: useFilesystem, UUID: uuidText(b[48:64]), Label: text(b[64:80])}, true
}

func squashfs(p *prober) (Signature, bool) {
	return Signature{Type: "squashfs", Use: useFilesystem}, p.has(0, "hsqs") || p.has(0, "sqsh")
}

func iso(p *prober) (Signature, bool) {
	if !p.has(0x8001, "CD001") {
		return Signature{}, false
	}
	return Signature{Type: "iso9660", Use: useFilesystem, Label: text(p.at(0x8028, 32))}, true
}

func qcow2(p *prober) (Signature, bool) {
	return Signature{Type: "qcow2", Use: useDiskImage}, p.has(0, "QFI\xfb")
}

func vfat(p *prober) (Signature, bool) {
	b := p.at(0, 512)
	if b[510] != 0x55 || b[511] != 0xaa {
		return Signature{}, false
	}
	at := 0
	switch {
	case string(b[82:87]) == "FAT32":
		at = 67
	case string(b[54:57]) == "FAT":
		at = 39
	default:
		return Signature{}, false
	}
	serial := binary.LittleEndian.Uint32(b[at:])
	label := text(b[at+4 : at+15])
	if label == "NO NAME" {
		label = ""
	}
	return Signature{Type: "vfat", Use: useFilesystem, UUID: fmt.Sprintf("%04X-%04X", serial>>16, serial&0xffff), Label: label}, true
}

func ntfs(p *prober) (Signature, bool) {
	b := p.at(0, 512)
	if string(b[3:11]) != "NTFS    " {
		return Signature{}, false
	}
	return Signature{Type: "ntfs", Use: useFilesystem, UUID: fmt.Sprintf("%016X", binary.LittleEndian.Uint64(b[72:]))}, true
}

func exfat(p *prober) (Signature, bool) {
	b := p.at(0, 512)
	if string(b[3:11]) != "EXFAT   " {
		return Signature{}, false
	}
	serial := binary.LittleEndian.Uint32(b[100:])
	return Signature{Type: "exfat", Use: useFilesystem, UUID: fmt.Sprintf("%04X-%04X", serial>>16, serial&0xffff)}, true
}

// gpt finds the table at the start, for sectors of 512 and 4096 bytes, and the
// copy at the end.
func gpt(p *prober) (Signature, bool) {
	for _, offset := range []int64{512, 4096, p.size - 512, p.size - 4096} {
		if p.has(offset, "EFI PART") {
			return Signature{Type: "gpt", Use: usePartitionTable, UUID: guidText(p.at(offset+56, 16))}, true
		}
	}
	return Signature{}, false
}

// mbr comes last in looks, because boot sectors of filesystems end with the
// same two bytes.
func mbr(p *prober) (Signature, bool) {
	b := p.at(0, 512)
	if b[510] != 0x55 || b[511] != 0xaa || len(p.found) > 0 {
		return Signature{}, false
	}
	used := false
	for at := 446; at < 510; at += 16 {
		entry := b[at : at+16]
		if entry[0]&0x7f != 0 {
			return Signature{}, false
		}
		used = used || entry[4] != 0 && binary.LittleEndian.Uint32(entry[12:]) != 0
	}
	s := Signature{Type: "dos", Use: usePartitionTable}
	if id := binary.LittleEndian.Uint32(b[440:]); id != 0 {
		s.UUID = fmt.Sprintf("%08x", id)
	}
	return s, used || s.UUID != ""
}

func uuidText(b []byte) string {
	if strings.Trim(string(b), "\x00") == "" {
		return ""
	}
	h := hex.EncodeToString(b)
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// guidText formats a UUID whose first three parts are little endian.
func guidText(b []byte) string {
	return uuidText([]byte{b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]})
}

// text returns the bytes up to the first zero as a label, without surrounding
// blanks and with ? for control characters.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return clean(s)
}

func wide(b []byte) string {
	var units []uint16
	for ; len(b) >= 2; b = b[2:] {
		unit := binary.LittleEndian.Uint16(b)
		if unit == 0 {
			break
		}
		units = append(units, unit)
	}
	return clean(string(utf16.Decode(units)))
}

func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffd {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?")))
}
