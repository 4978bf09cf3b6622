package lxdtest

import (
	"archive/tar"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Busybox is the path of the static busybox that the tiny image contains.
const Busybox = "/bin/busybox"

// TinyInit is the script of process 1 in the tiny image. It runs until it is
// asked to stop, and requests an address by DHCP unless /etc/no-dhcp exists. It
// prints "init up" on the console.
const TinyInit = `#!/bin/sh
trap 'exit 0' PWR TERM INT
export PATH=/bin:/sbin
ip link set lo up
echo init up
[ -e /etc/no-dhcp ] || udhcpc -i eth0 -f -t 20 -T 1 -s /etc/udhcpc.script >/dev/null 2>&1 &
while :; do sleep 3600 & wait $!; done
`

const tinyLease = `#!/bin/sh
case "$1" in
bound|renew)
  ip addr flush dev "$interface"
  ip addr add "$ip/$mask" dev "$interface"
  [ -z "$router" ] || ip route add default via "${router%% *}"
esac
`

// applets are the commands of the tiny image.
var applets = []string{
	"sh", "ip", "udhcpc", "sleep", "cat", "echo", "ls", "ps", "mount", "kill", "hostname", "true", "false", "sed",
	"grep", "head", "tail", "test", "id", "touch", "rm", "mkdir", "dd", "df", "wget", "httpd", "ping", "nproc", "free", "nc",
	"stty",
}

// BuildTiny writes a unified LXD image of about 2 MB to path. init is the
// script of process 1; "" means TinyInit. The same arguments always make the
// same bytes.
func BuildTiny(path, init string) error {
	busybox, err := os.ReadFile(Busybox)
	if err != nil {
		return fmt.Errorf("cannot build the tiny image: %w (it needs the package busybox-static)", err)
	}
	if init == "" {
		init = TinyInit
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot build the tiny image: %w", err)
	}
	defer func() { _ = file.Close() }()
	w := &tarball{Writer: tar.NewWriter(file)}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	w.file("metadata.yaml", 0o644, "architecture: "+arch+"\ncreation_date: 1700000000\nproperties: {description: tiny, os: busybox}\n")
	for _, dir := range []string{"", "bin", "sbin", "etc", "proc", "sys", "dev", "run", "tmp", "root", "var", "usr"} {
		w.add(&tar.Header{Typeflag: tar.TypeDir, Name: "rootfs/" + dir, Mode: 0o755}, "")
	}
	w.file("rootfs/bin/busybox", 0o755, string(busybox))
	for _, applet := range applets {
		w.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: "rootfs/bin/" + applet, Linkname: "busybox", Mode: 0o777}, "")
	}
	w.file("rootfs/sbin/init", 0o755, init)
	w.file("rootfs/etc/udhcpc.script", 0o755, tinyLease)
	w.file("rootfs/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n")
	w.file("rootfs/etc/group", 0o644, "root:x:0:\n")
	if w.err == nil {
		w.err = w.Close()
	}
	if w.err == nil {
		w.err = file.Close()
	}
	return w.err
}

type tarball struct {
	*tar.Writer
	err error
}

func (w *tarball) file(name string, mode int64, content string) {
	w.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, content)
}

func (w *tarball) add(h *tar.Header, content string) {
	h.ModTime = time.Unix(1700000000, 0)
	h.Format = tar.FormatGNU
	if w.err == nil {
		w.err = w.WriteHeader(h)
	}
	if w.err == nil {
		_, w.err = w.Write([]byte(content))
	}
}
