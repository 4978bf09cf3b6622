package blockdevice

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// madeUp is a fake host in files; its device nodes are real but have no device.
type madeUp struct {
	t    *testing.T
	host Host
}

func (m madeUp) write(path, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m madeUp) device(dir, name string, minor uint32, attributes map[string]string) {
	m.t.Helper()
	at := filepath.Join(m.host.Sys, "block", dir)
	m.write(filepath.Join(at, "dev"), "251:"+string('0'+rune(minor))+"\n")
	m.write(filepath.Join(at, "size"), "2048\n")
	for attribute, text := range attributes {
		m.write(filepath.Join(at, attribute), text+"\n")
	}
	if err := unix.Mknod(filepath.Join(m.host.Dev, name), unix.S_IFBLK|0o600, int(unix.Mkdev(251, minor))); err != nil {
		m.t.Fatal(err)
	}
}

// S40: disks and partitions are listed with the ids of udev and the kernel,
// without floppies, empty loop devices and devices without a node. A mount, a
// partition, swap or a device above makes a device in use.
func TestListOfAFakeHost(t *testing.T) {
	top := t.TempDir()
	m := madeUp{t, Host{Dev: filepath.Join(top, "dev"), Sys: filepath.Join(top, "sys"), Proc: filepath.Join(top, "proc"), Run: filepath.Join(top, "run")}}
	m.write(filepath.Join(m.host.Dev, "null"), "")
	m.write(filepath.Join(m.host.Proc, "self/mountinfo"), "30 1 251:2 / /srv rw - ext4 /dev/sda1 rw\n")
	m.write(filepath.Join(m.host.Proc, "swaps"), "Filename Type\n"+filepath.Join(m.host.Dev, "sdb")+" partition 1 0 -2\n")
	m.device("sda", "sda", 1, map[string]string{"ro": "0", "device/model": "DISK"})
	m.device("sda/sda1", "sda1", 2, map[string]string{"partition": "1"})
	m.device("sdb", "sdb", 3, nil)
	m.device("sdc", "sdc", 4, map[string]string{"holders/dm-0/x": "", "serial": "S1", "wwid": "eui.1"})
	m.device("sdd", "sdd", 5, map[string]string{"ro": "1"})
	m.device("fd0", "fd0", 6, nil)
	m.device("loop9", "loop9", 7, nil)
	m.device("ram1", "ram1", 8, nil)
	m.device("dm-0", "dm-0", 9, map[string]string{"dm/uuid": "LVM-x"})
	m.write(filepath.Join(m.host.Sys, "block/gone/dev"), "251:10\n")
	m.write(filepath.Join(m.host.Sys, "block/gone/size"), "2048\n")
	m.write(filepath.Join(m.host.Run, "udev/data/b251:1"), "S:disk/by-id/wwn-0x5000\nS:disk/by-id/ata-D_1\nE:ID_WWN=0x5\nE:ID_WWN_WITH_EXTENSION=0x5000\nE:ID_BUS=ata\nE:ID_SERIAL=D_1\nE:ID_SERIAL_SHORT=1\n")
	all, err := m.host.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names, used []string
	for _, d := range all {
		names = append(names, d.Name+" "+d.Type)
		if d.InUse {
			used = append(used, d.Name)
		}
		if d.Size != 1<<20 {
			t.Errorf("%s has %d bytes", d.Name, d.Size)
		}
	}
	if want := []string{"dm-0 lvm", "sda disk", "sda1 part", "sdb disk", "sdc disk", "sdd disk"}; !slices.Equal(names, want) {
		t.Errorf("listed %q", names)
	}
	if want := []string{"sda", "sda1", "sdb", "sdc"}; !slices.Equal(used, want) {
		t.Errorf("in use %q", used)
	}
	sda := all[1]
	if sda.WWN != "0x5000" || sda.Serial != "1" || sda.HardwareID != "ata-D_1" || sda.Model != "DISK" || sda.Preferred() != filepath.Join(m.host.Dev, "disk/by-id/wwn-0x5000") {
		t.Errorf("%+v, preferred %s", sda, sda.Preferred())
	}
	if all[2].Parent != "sda" || all[4].WWN != "eui.1" || all[4].Serial != "S1" || !all[5].ReadOnly || all[5].Unreadable == "" {
		t.Errorf("%+v", all)
	}
}
