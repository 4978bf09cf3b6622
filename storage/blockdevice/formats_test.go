package blockdevice

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"
)

const disk = 8 << 20

type put struct {
	at   int64
	text string
}

var id16 = "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"

const idText = "01234567-89ab-cdef-0123-456789abcdef"

func le32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }

// Each format is recognised by its signature alone, as in the format's
// documents.
func TestFormats(t *testing.T) {
	boot := put{510, "\x55\xaa"}
	entry := put{446, "\x80\x00\x00\x00\x83\x00\x00\x00" + le32(2048) + le32(4096)}
	for want, puts := range map[string][]put{
		`ext2 filesystem labelled "data"`:                     {{1080, "\x53\xef"}, {1024 + 0x68, id16}, {1024 + 0x78, "data"}},
		`ext3 filesystem`:                                     {{1080, "\x53\xef"}, {1024 + 0x5c, le32(4)}},
		`ext4 filesystem`:                                     {{1080, "\x53\xef"}, {1024 + 0x5c, le32(4)}, {1024 + 0x60, le32(0x40)}},
		`jbd member of a volume group or array`:               {{1080, "\x53\xef"}, {1024 + 0x60, le32(8)}},
		`xfs filesystem labelled "x"`:                         {{0, "XFSB"}, {32, id16}, {108, "x"}},
		`xfs filesystem, incomplete`:                          {{0, "XFSB"}, {126, "\x01"}},
		`btrfs filesystem labelled "b"`:                       {{0x10040, "_BHRfS_M"}, {0x10020, id16}, {0x1012b, "b"}},
		`btrfs filesystem, incomplete`:                        {{0x10040, "!BHRfS_M"}},
		`swap swap space labelled "s"`:                        {{4086, "SWAPSPACE2"}, {1036, id16}, {1052, "s"}},
		`swsuspend swap space`:                                {{4086, "S1SUSPEND\x00"}},
		`LVM2_member member of a volume group or array`:       {{512, "LABELONE"}, {512 + 20, le32(32)}, {512 + 24, "LVM2 001"}, {544, "abcdefghijklmnopqrstuvwxyz012345"}},
		`crypto_LUKS encrypted volume`:                        {{0, "LUKS\xba\xbe\x00\x01"}, {168, idText}},
		`crypto_LUKS encrypted volume labelled "secret"`:      {{0, "LUKS\xba\xbe\x00\x02"}, {24, "secret"}, {168, idText}},
		`gpt partition table`:                                 {{512, "EFI PART"}, boot, entry},
		`dos partition table`:                                 {boot, entry},
		`vfat filesystem labelled "BOOT"`:                     {boot, {82, "FAT32   "}, {67, "\x12\x34\x56\x78"}, {71, "BOOT       "}},
		`vfat filesystem`:                                     {boot, {54, "FAT16   "}, {43, "NO NAME    "}},
		`ntfs filesystem`:                                     {boot, {3, "NTFS    "}},
		`exfat filesystem`:                                    {boot, {3, "EXFAT   "}},
		`iso9660 filesystem labelled "CDROM"`:                 {{0x8001, "CD001"}, {0x8028, "CDROM   "}},
		`squashfs filesystem`:                                 {{0, "hsqs"}},
		`erofs filesystem labelled "e"`:                       {{1024, le32(0xE0F5E1E2)}, {1072, id16}, {1088, "e"}},
		`f2fs filesystem labelled "fé"`:                       {{1024, le32(0xF2F52010)}, {1024 + 108, id16}, {1024 + 124, "f\x00\xe9\x00"}},
		`zfs_member member of a volume group or array`:        {{128<<10 + 3072, "\x0c\xb1\xba\x00\x00\x00\x00\x00"}},
		`linux_raid_member member of a volume group or array`: {{4096, le32(0xa92b4efc)}},
		`bcache member of a volume group or array`:            {{4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"}},
		`reiserfs filesystem`:                                 {{0x10034, "ReIsEr2Fs"}},
		`jfs filesystem`:                                      {{0x8000, "JFS1"}},
		`hfsplus filesystem`:                                  {{0x400, "H+"}},
		`qcow2 disk image`:                                    {{0, "QFI\xfb"}},
		`BitLocker encrypted volume`:                          {{3, "-FVE-FS-"}},
	} {
		b := make([]byte, disk)
		for _, p := range puts {
			copy(b[p.at:], p.text)
		}
		got, err := Probe(bytes.NewReader(b), disk)
		if err != nil || Describe(got) != want {
			t.Errorf("want %s, got %s, %v", want, Describe(got), err)
		}
		if blank, found, err := Blank(t.Context(), bytes.NewReader(b), disk, nil); blank || err != nil || found != want {
			t.Errorf("%s: blank %v, %q, %v", want, blank, found, err)
		}
	}
}

// Signatures at the end of the device count too: the copy of a table, the
// superblock of an array's member.
func TestMarksAtTheEnd(t *testing.T) {
	for want, p := range map[string]put{
		"gpt": {disk - 512, "EFI PART"}, "linux_raid_member": {disk - 8192, le32(0xa92b4efc)}, "zfs_member": {disk - 128<<10, "\x0c\xb1\xba\x00\x00\x00\x00\x00"},
	} {
		b := make([]byte, disk)
		copy(b[p.at:], p.text)
		if got, err := Probe(bytes.NewReader(b), disk); err != nil || len(got) != 1 || got[0].Type != want {
			t.Errorf("want %s, got %s, %v", want, Describe(got), err)
		}
	}
}

// A device with nonzero bytes is not blank, even if the format is unknown.
func TestUnknownDataIsNotBlank(t *testing.T) {
	for _, at := range []int64{0, 4<<20 - 1, 5 << 20, 5<<20 + 200<<10, disk - 1, disk/2 + 12345} {
		b := make([]byte, disk)
		if blank, _, err := Blank(t.Context(), bytes.NewReader(b), disk, nil); !blank || err != nil {
			t.Fatalf("zeros: %v, %v", blank, err)
		}
		b[at] = 1
		if blank, found, err := Blank(t.Context(), bytes.NewReader(b), disk, nil); blank || err != nil || found != "data of an unknown kind" {
			t.Errorf("at %d: %v, %q, %v", at, blank, found, err)
		}
	}
}

func TestLabelsAreHarmless(t *testing.T) {
	b := make([]byte, disk)
	copy(b[0x8001:], "CD001")
	copy(b[0x8028:], "\x1b[31m\xff\x7f  ")
	got, err := Probe(bytes.NewReader(b), disk)
	if err != nil || len(got) != 1 || strings.ContainsAny(got[0].Label, "\x1b\x7f") || !utf8.ValidString(got[0].Label) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEventsAreParsed(t *testing.T) {
	message := "add@/devices/virtual/block/loop3\x00ACTION=add\x00SUBSYSTEM=block\x00DEVNAME=loop3\x00SEQNUM=7\x00"
	if !ofBlockDevice([]byte(message)) {
		t.Errorf("%q is not seen", message)
	}
	for _, other := range []string{"", "libudev\x00x", "add@/x\x00ACTION=add\x00SUBSYSTEM=net\x00DEVNAME=eth0\x00", "\x00\x00", "add@/x\x00SUBSYSTEM=block"} {
		if ofBlockDevice([]byte(other)) {
			t.Errorf("%q is seen", other)
		}
	}
}

// S41: by WWN, by hardware id, by the first other link, by UUID, by name.
func TestPreferred(t *testing.T) {
	d := Device{
		Path: "/dev/sda", WWN: "0x5000", HardwareID: "ata-DISK_1", Signatures: []Signature{{UUID: "u-u"}},
		Links: []string{"/dev/disk/by-id/ata-DISK_1", "/dev/disk/by-id/wwn-0x5000", "/dev/disk/by-path/pci-1", "/dev/disk/by-uuid/u-u"},
	}
	for _, want := range []string{"/dev/disk/by-id/wwn-0x5000", "/dev/disk/by-id/ata-DISK_1", "/dev/disk/by-path/pci-1", "/dev/disk/by-uuid/u-u", "/dev/sda"} {
		if got := d.Preferred(); got != want {
			t.Fatalf("want %s, got %s", want, got)
		}
		for i, link := range d.Links {
			if link == want {
				d.Links = append(append([]string{}, d.Links[:i]...), d.Links[i+1:]...)
				break
			}
		}
	}
}

func FuzzProbe(f *testing.F) {
	f.Add([]byte("LUKS\xba\xbe"), uint16(0), int64(1<<20))
	f.Add([]byte("LABELONE\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xffLVM2 001"), uint16(512), int64(4096))
	f.Add([]byte("\x55\xaa"), uint16(510), int64(512))
	f.Fuzz(func(t *testing.T, data []byte, at uint16, size int64) {
		b := make([]byte, int(at)+len(data))
		copy(b[at:], data)
		found, err := Probe(bytes.NewReader(b), size%(64<<20))
		if err != nil {
			return
		}
		for _, s := range found {
			if s.Type == "" || s.Use == "" || strings.ContainsAny(s.Label+s.UUID, "\x00\n\x1b") {
				t.Errorf("%+v", s)
			}
		}
	})
}
