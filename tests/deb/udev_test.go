//go:build integration

package deb_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler/tests/harness"
)

// probe makes a loop device with a btrfs filesystem, and shows what udev of a
// release finds on it. $1 is the release's root filesystem, $2 an empty folder, $3
// the rules of the package, and $4 the file behind the device.
const probe = `
mount -o loop,ro "$1" "$2"
mount --rbind /sys "$2/sys"
mount -t proc proc "$2/proc"
for dir in dev run var/lib srv; do mount -t tmpfs tmpfs "$2/$dir"; done
install -D -m 0644 "$3" "$2/run/udev/rules.d/59-hostler.rules"
mkdir -p "$(dirname "$2$4")"
truncate -s 128M "$2$4"
mkfs.btrfs -q "$2$4"
device=$(losetup -f --show "$2$4")
trap 'losetup -d "$device"' EXIT
cp -a "$device" /dev/null "$2/dev/"
chroot "$2" udevadm test --action=change "/sys/block/${device##*/}" 2>&1
`

// The host's udev finds no filesystem, array or volume group on a volume, which
// may be a guest's. It finds those of other loop devices. The rules of LVM, mdadm
// and btrfs act on ID_FS_TYPE.
func TestUdevLeavesVolumesToTheirGuests(t *testing.T) {
	_, root := harness.HostImage(t, harness.HostRelease(t))
	for file, found := range map[string]bool{
		"/var/lib/hostler/volumes/data.img": false,
		"/srv/data/hostler/volumes/a.img":   false, // /var/lib/hostler may be a link
		"/var/lib/other/volumes/data.img":   true,
	} {
		dir := filepath.Join(t.TempDir(), "root")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := harness.Try(nil, "unshare", "-m", "sh", "-euc", probe, "sh", root, dir, filepath.Join(harness.Root(t), "debian/volumes.rules"), file)
		if err != nil || !strings.Contains(out, "DEVNAME=/dev/loop") {
			t.Fatalf("%s: %v\n%s", file, err, out)
		}
		if got := strings.Contains(out, "ID_FS_TYPE=btrfs"); got != found || strings.Contains(out, "Invalid") {
			t.Errorf("%s: udev finds the filesystem: %v, want %v\n%s", file, got, found, out)
		}
	}
}
