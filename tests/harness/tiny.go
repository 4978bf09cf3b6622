package harness

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

const tinyMetadata = `architecture: x86_64
creation_date: 1
properties: {description: tiny test image, os: tiny, release: "1"}
`

// tinyInit keeps the container up and ends when LXD asks it to.
const tinyInit = `#!/bin/sh
trap 'exit 0' PWR TERM INT
mount -t proc proc /proc 2>/dev/null
ip link set lo up
udhcpc -b -q -i eth0 -s /bin/lease >/dev/null 2>&1 &
while :; do sleep 3600 & wait $!; done
`

const tinyLease = `#!/bin/sh
[ "$1" = bound ] && ip addr add "$ip/$mask" dev "$interface"
`

// TinyImage makes a unified LXD image of about a megabyte that boots at once,
// has a DHCP client and no cloud-init. It returns the file and its sha256.
func TinyImage(t testing.TB) (file, digest string) {
	t.Helper()
	work := t.TempDir()
	for _, dir := range []string{"bin", "sbin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var", "usr"} {
		if err := os.MkdirAll(filepath.Join(work, "rootfs", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"metadata.yaml": tinyMetadata, "rootfs/bin/busybox": string(busybox), "rootfs/sbin/init": tinyInit, "rootfs/bin/lease": tinyLease,
		"rootfs/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "rootfs/etc/group": "root:x:0:\n",
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, applet := range []string{"sh", "cat", "echo", "env", "hostname", "httpd", "id", "ip", "kill", "ls", "mount", "ps", "sleep", "test", "true", "false", "udhcpc", "wget"} {
		if err := os.Symlink("busybox", filepath.Join(work, "rootfs/bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(work, "tiny.tar.gz")
	Run(t, "tar", "-C", work, "--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--mtime=@0", "-czf", file, "metadata.yaml", "rootfs")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, fmt.Sprintf("%x", sha256.Sum256(b))
}
