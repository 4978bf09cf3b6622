package kvm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// spaceLeast is the disk space, in bytes, for libvirt, QEMU, a single guest and
// its image.
const spaceLeast = 3 << 30

// Supported implements initialisers.Initialiser. Every host of a known
// architecture can run guests, if slowly. Initialise tries KVM; Accelerator
// reports the result.
func (i *Initialiser) Supported(ctx context.Context) (bool, string) {
	var problems []string
	if os.Geteuid() != 0 {
		problems = append(problems, "the agent does not run as root: run hostlerd as root")
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		problems = append(problems, fmt.Sprintf("hostler runs KVM guests on amd64 and arm64, not on %s: use another machine", runtime.GOARCH))
	}
	if i.opts.Accelerator == AcceleratorKVM {
		if _, err := os.Stat(i.opts.Paths.Host("/dev/kvm")); err != nil {
			problems = append(problems, "types.kvm.accelerator is kvm and there is no /dev/kvm: switch on virtualisation in the firmware, load kvm_intel or kvm_amd, or set auto")
		}
	}
	if _, err := os.Stat(i.opts.Paths.Host("/dev/net/tun")); err != nil {
		problems = append(problems, "there is no /dev/net/tun, which guests need for networks: load the kernel module tun")
	}
	if i.answers(ctx) != nil {
		dir := existing(i.opts.PoolDir)
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) < spaceLeast {
			problems = append(problems, fmt.Sprintf("%s has %d MiB free: free %d MiB", dir, fs.Bavail*uint64(fs.Bsize)>>20, spaceLeast>>20))
		}
	}
	return len(problems) == 0, strings.Join(problems, "; ")
}

// Guests implements initialisers.Describer: how is empty while it is unknown.
func (i *Initialiser) Guests() (how, mend string) {
	o, err := ReadOutcome(i.opts.Paths)
	switch {
	case err != nil:
		return "", ""
	case o.Accelerator == AcceleratorKVM:
		return "guests run under KVM: a kernel was booted to prove it", ""
	}
	return "guests run without KVM, some ten times slower: " + o.Reason, "give the host hardware virtualisation (/dev/kvm)"
}

// existing returns path or its nearest existing parent folder.
func existing(path string) string {
	for path != "/" {
		if _, err := os.Stat(path); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}
