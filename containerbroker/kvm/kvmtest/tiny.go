package kvmtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/containerbroker/images"
	"hostler/internal/run"
)

// modules are the kernel modules that the tiny guest needs, in load order.
var modules = []string{
	"virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk", "failover",
	"net_failover", "virtio_net", "virtio_console", "virtio_balloon", "cdrom", "isofs", "button", "evdev",
}

// tinyInit is the script of process 1 in the tiny guest. It sets the host name
// and addresses as cloud-init would, and runs QEMU's guest agent.
const tinyInit = `#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run
mkdir -p /dev/pts; mount -t devpts pts /dev/pts
for m in MODULES MODULES; do insmod /lib/modules/$m.ko 2>/dev/null; done
ip link set lo up
echo "init up $(cut -d' ' -f1 /proc/uptime)" >/dev/console
for d in /sys/block/vd*; do
  mount -r -t iso9660 /dev/${d##*/} /mnt 2>/dev/null && [ -e /mnt/meta-data ] && break
done
hostname "$(sed -n 's/.*"local-hostname": "\([^"]*\)".*/\1/p' /mnt/meta-data)"
static=$(tr -d '\n ' </mnt/network-config 2>/dev/null | grep -o '"[a-z0-9]*":{"match":{"macaddress":"[^"]*"},"set-name":"[^"]*","dhcp4":false,"dhcp6":false,"accept-ra":false,"addresses":\["[^"]*"' | sed 's/.*macaddress":"\([^"]*\)".*addresses":\["\([^"]*\)"/\1=\2/')
for d in /sys/class/net/eth*; do
  d=${d##*/}
  ip link set $d up
  a=
  for s in $static; do [ "${s%%=*}" != "$(cat /sys/class/net/$d/address)" ] || a=${s#*=}; done
  if [ -n "$a" ]; then ip addr add $a dev $d
  else udhcpc -i $d -b -t 40 -T 1 -s /etc/udhcpc.script >/dev/null 2>&1 & fi
done
gateway=$(sed -n 's/.*"gateway4": "\([^"]*\)".*/\1/p' /mnt/network-config 2>/dev/null)
[ -z "$gateway" ] || ip route add default via ${gateway%% *}
for p in /sys/class/virtio-ports/*; do
  [ "$(cat $p/name)" != org.qemu.guest_agent.0 ] || port=/dev/${p##*/}
done
qemu-ga -m virtio-serial -p $port -t /run -f /run/qga.pid >/dev/console 2>&1 &
echo "TINY-READY $(hostname)" >/dev/console
while :; do setsid cttyhack sh; sleep 1; done
`

const tinyLease = `#!/bin/sh
case "$1" in
bound|renew)
  ip addr flush dev "$interface"
  ip addr add "$ip/$mask" dev "$interface"
  [ -z "$router" ] || ip route add default via "${router%% *}"
esac
`

// tinyPackages are the packages from which files of the tiny guest come. KERNEL
// stands for Debian's current cloud kernel. The packages after the guest agent
// hold its libraries.
var tinyPackages = []string{"KERNEL", "qemu-guest-agent", "libglib2.0-0", "libnuma1", "liburing2", "libudev1", "libpcre2-8-0"}

// tinyArguments leave out what takes an emulated processor long: tests of the
// kernel's ciphers, random addresses, and a clock that is read from a device.
const tinyArguments = "net.ifnames=0 quiet mitigations=off cryptomgr.notests nokaslr tsc=reliable no_timer_check"

// tinyMu has tests that run in parallel build the disk once.
var tinyMu sync.Mutex

var depends = regexp.MustCompile(`Depends: (linux-image-[0-9][^ \n]*)`)

// Tiny returns the path of a bootable disk of about 12 MiB. Its guest has
// booted about three seconds after its start. The disk is built once and kept
// in the repository's .cache. The packages come from the host's apt mirror.
func Tiny(t testing.TB) string {
	t.Helper()
	tinyMu.Lock()
	defer tinyMu.Unlock()
	key := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, tinyInit, tinyLease, modules, tinyPackages, tinyArguments, 5)))[:12]
	dir := filepath.Join(top(t), ".cache", "images")
	check(t, "make the cache of images", os.MkdirAll(dir, 0o755))
	disk := filepath.Join(dir, "tiny-"+key+".qcow2")
	if _, err := os.Stat(disk); err == nil {
		return disk
	}
	b := builder{t: t, work: t.TempDir()}
	b.fetch()
	root := b.root()
	whole := filepath.Join(b.work, "tiny.qcow2")
	err := images.MakeDisk(context.Background(), run.Host{}, images.Disk{
		Root: root, Size: 48 << 20, Arguments: tinyArguments,
	}, b.work, whole)
	check(t, "make the tiny disk", err)
	check(t, "keep the tiny disk", os.Rename(whole, disk))
	return disk
}

// TinyReference returns the image reference, as in a declaration, of the disk
// that Tiny() makes.
func TinyReference(t testing.TB) string {
	t.Helper()
	disk := Tiny(t)
	data, err := os.ReadFile(disk)
	check(t, "read the tiny disk", err)
	return fmt.Sprintf("file:%s#sha256=%x", disk, sha256.Sum256(data))
}

// top returns the root of the repository.
func top(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	check(t, "find the repository", err)
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("cannot find the repository")
	return ""
}

type builder struct {
	t    testing.TB
	work string
}

func (b builder) run(path string, args ...string) string {
	b.t.Helper()
	result, err := run.Host{}.Run(context.Background(), run.Command{Path: path, Args: args, Dir: b.work, Timeout: 5 * time.Minute})
	check(b.t, "run "+filepath.Base(path), err)
	return string(result.Stdout)
}

// fetch unpacks the packages into work/x.
func (b builder) fetch() {
	b.t.Helper()
	found := depends.FindStringSubmatch(b.run("/usr/bin/apt-cache", "depends", "linux-image-cloud-amd64"))
	if found == nil {
		b.t.Fatal("apt knows no kernel for clouds")
	}
	names := slices.Clone(tinyPackages)
	names[0] = found[1]
	b.run("/usr/bin/apt-get", append([]string{"-q", "download"}, names...)...)
	debs, _ := filepath.Glob(filepath.Join(b.work, "*.deb"))
	for _, deb := range debs {
		b.run("/usr/bin/dpkg-deb", "-x", deb, filepath.Join(b.work, "x"))
	}
}

// root builds a folder with the kernel and the initramfs. The initramfs holds
// the whole system.
func (b builder) root() string {
	b.t.Helper()
	x, root := filepath.Join(b.work, "x"), filepath.Join(b.work, "root")
	check(b.t, "make the root", os.Mkdir(root, 0o755))
	kernels, _ := filepath.Glob(filepath.Join(x, "boot", "vmlinuz-*"))
	if len(kernels) != 1 {
		b.t.Fatalf("kernels %v", kernels)
	}
	kernel := []byte(b.read(kernels[0]))
	loadAtOnce(kernel)
	check(b.t, "write the kernel", os.WriteFile(filepath.Join(root, "vmlinuz"), kernel, 0o600))
	var archive bytes.Buffer
	z, _ := gzip.NewWriterLevel(&archive, gzip.BestSpeed)
	w := &cpio{w: z}
	for _, dir := range []string{"bin", "sbin", "etc", "proc", "sys", "dev", "run", "tmp", "mnt", "root", "lib", "lib/modules", "lib64", "lib/x86_64-linux-gnu", "usr", "usr/bin", "usr/sbin", "var"} {
		w.add(dir, 0o40755, "")
	}
	w.add("var/run", 0o120777, "/run")
	w.add("dev/console", 0o20600, "")
	busybox := b.read("/bin/busybox")
	w.add("bin/busybox", 0o100755, busybox)
	for name := range strings.Lines(b.run("/bin/busybox", "--list")) {
		if name = strings.TrimSpace(name); name != "busybox" {
			w.add("bin/"+name, 0o120777, "busybox")
		}
	}
	w.add("init", 0o100755, strings.ReplaceAll(tinyInit, "MODULES", strings.Join(modules, " ")))
	w.add("etc/udhcpc.script", 0o100755, tinyLease)
	w.add("etc/passwd", 0o100644, "root:x:0:0:root:/root:/bin/sh\n")
	w.add("etc/group", 0o100644, "root:x:0:\n")
	// The guest's agent calls this program to shut down.
	w.add("sbin/shutdown", 0o100755, "#!/bin/sh\npoweroff -f\n")
	w.add("sbin/qemu-ga", 0o100755, b.read(b.find(x, "qemu-ga")))
	for _, module := range modules {
		w.add("lib/modules/"+module+".ko", 0o100644, b.read(b.find(x, module+".ko")))
	}
	for _, lib := range []string{"libglib-2.0.so.0", "libgmodule-2.0.so.0", "libnuma.so.1", "liburing.so.2", "libudev.so.1", "libpcre2-8.so.0"} {
		w.add("lib/x86_64-linux-gnu/"+lib, 0o100755, b.read(b.find(x, lib)))
	}
	for _, lib := range []string{"libm.so.6", "libc.so.6"} {
		w.add("lib/x86_64-linux-gnu/"+lib, 0o100755, b.read("/lib/x86_64-linux-gnu/"+lib))
	}
	w.add("lib64/ld-linux-x86-64.so.2", 0o100755, b.read("/lib64/ld-linux-x86-64.so.2"))
	w.add("TRAILER!!!", 0, "")
	check(b.t, "write the first root filesystem", w.err)
	check(b.t, "write the first root filesystem", z.Close())
	check(b.t, "write the first root filesystem", os.WriteFile(filepath.Join(root, "initrd.img"), archive.Bytes(), 0o600))
	return root
}

// loadAtOnce sets the address at which a kernel prefers to be loaded (the field
// pref_address of Documentation/arch/x86/boot.rst) to 1 MiB, where GRUB reads
// it to. GRUB would otherwise move the 54 MiB that the kernel may use, byte by
// byte, which takes an emulated processor two seconds. The kernel moves itself.
func loadAtOnce(kernel []byte) {
	const prefAddress = 0x258
	binary.LittleEndian.PutUint64(kernel[prefAddress:], 1<<20)
}

func (b builder) read(path string) string {
	b.t.Helper()
	data, err := os.ReadFile(path)
	check(b.t, "read "+path, err)
	return string(data)
}

// find returns the path of a file of that name in any folder below dir. It
// fails the test if there is none.
func (b builder) find(dir, name string) string {
	b.t.Helper()
	found := ""
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == name && !d.IsDir() {
			found = path
		}
		return nil
	})
	if found == "" {
		b.t.Fatalf("no package has %s", name)
	}
	return found
}

// cpio writes an archive in the format of the kernel's initramfs (the "newc"
// format of Documentation/driver-api/early-userspace).
type cpio struct {
	w   interface{ Write([]byte) (int, error) }
	n   int
	err error
}

func (c *cpio) add(name string, mode uint32, content string) {
	c.n++
	major, minor := 0, 0
	if name == "dev/console" {
		major, minor = 5, 1
	}
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.n, mode, 0, 0, 1, 1700000000, len(content), 0, 0, major, minor, len(name)+1, 0)
	c.write(head + name + "\x00")
	c.write(content)
}

// write pads text to a multiple of 4 bytes. The format pads the header and the
// name together, so add() passes both at once.
func (c *cpio) write(text string) {
	if c.err == nil {
		_, c.err = c.w.Write([]byte(text + strings.Repeat("\x00", (4-len(text)%4)%4)))
	}
}
