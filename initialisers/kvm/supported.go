package kvm

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"hostler/internal/paths"
	"hostler/packaging"
)

// spaceLeast is the least free disk space, in bytes. It is enough for libvirt,
// QEMU, a single guest and its image.
const spaceLeast = 3 << 30

// Supported implements initialisers.Initialiser. Every host of a known
// architecture can run guests, although slowly without KVM. Initialise tests
// KVM, and Guests reports the result.
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
	if r, err := packaging.ReadRelease(i.opts.Paths.OSRelease()); err == nil && r.ID == packaging.Ubuntu && r.Version == "22.04" {
		problems = append(problems, "polkit of Ubuntu 22.04 (0.105) does not read the rule that lets hostler's provisioner use libvirt: upgrade the host to Ubuntu 24.04")
	}
	if i.lacksPrograms() != "" {
		if err := i.obtainable(ctx); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if i.answers(ctx) != nil {
		dir := paths.Existing(i.opts.PoolDir)
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) < spaceLeast {
			problems = append(problems, fmt.Sprintf("%s has %d MiB free: free %d MiB", dir, fs.Bavail*uint64(fs.Bsize)>>20, spaceLeast>>20))
		}
	}
	return len(problems) == 0, strings.Join(problems, "; ")
}

// Guests implements initialisers.Describer. Until Initialise has tested KVM in
// this boot, it returns "".
func (i *Initialiser) Guests() (how, mend string) {
	o, err := ReadOutcome(i.opts.Paths)
	switch {
	case err != nil:
		return "", ""
	case o.Accelerator == AcceleratorKVM:
		return "guests run under KVM: a kernel was booted to prove it", ""
	}
	mend = "give the host hardware virtualisation (/dev/kvm)"
	if o.TimedOut {
		mend = "when the host is less busy, run `systemctl restart hostlerd`, which tests KVM again; if it still fails, " + mend
	}
	return "guests run without KVM, some ten times slower: " + o.Reason, mend
}
