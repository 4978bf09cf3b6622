//go:build integration && long

package next

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"hostler/tests/harness"
)

const packages = "incus-base,incus-client,dnsmasq-base,btrfs-progs,squashfs-tools,xz-utils,iproute2,nftables,busybox-static,uidmap,e2fsprogs,util-linux,kmod,procps,ca-certificates"

// inside runs the driver's tests in the root filesystem. It does not use chroot
// alone, after which the kernel makes no user namespaces. Incus 7 knows only
// cgroup v2. The network is its own, because the nft of this machine crashes when
// it lists what a later nft wrote.
const inside = `set -e
mount --bind "$1" "$1"
cd "$1" && ip link set lo up
mkdir -p old
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
pivot_root . old
exec chroot . sh -ec 'umount -l /old
echo "Incus $(/usr/libexec/incus/incusd --version), kernel $(uname -r)"
cd /root
exec env HOSTLER_TEST_DAEMON=incus TMPDIR=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin ./driver.test -test.v -test.timeout 30m -test.run "^(TestConformance|TestIncus)\$"'
`

func TestIncusOfDebianTesting(t *testing.T) {
	t.Setenv("HOSTLER_TEST_RELEASE", "debian/testing")
	r := harness.HostRelease(t)
	root := filepath.Join(t.TempDir(), "root")
	harness.Run(t, "mmdebstrap", slices.Concat(r.AptOptions(t), []string{
		"--variant=minbase", "--mode=root", "--include=" + packages, `--aptopt=Acquire::Languages "none"`,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		`--customize-hook=printf 'root:1000000:1000000000\n' | tee "$1/etc/subuid" >"$1/etc/subgid"`,
		"--keyring=" + r.Keyring(), "--format=directory", r.Suite, root,
	}, r.Mirrors(t))...)
	harness.Run(t, "go", "test", "-c", "-tags", "integration,failpoint", "-o", filepath.Join(root, "root", "driver.test"),
		filepath.Join(harness.Root(t), "containerbroker", "lxd"))
	out, err := exec.Command("unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", inside, "sh", root).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
