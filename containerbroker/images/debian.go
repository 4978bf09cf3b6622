package images

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"hostler/internal/failpoint"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

//go:embed debian busybox
var embedded embed.FS

// buildTimeout bounds a run of mmdebstrap or mksquashfs. apt itself notices a
// stalled mirror much earlier.
const buildTimeout = 30 * time.Minute

// proxyFile is the name of apt's configuration file with the proxy, in the work
// directory.
const proxyFile = "proxy.conf"

// debianPackages are the packages that every image of Debian and Ubuntu
// contains besides the essential packages. Containers need udev, too, because
// networkd waits for udev for ever if /sys is writable.
var debianPackages = []string{
	"systemd-sysv", "udev", "dbus", "iproute2", "netbase", "ca-certificates",
	"cloud-init", "openssh-server", "sudo", "libnss-myhostname",
}

// debianPlan holds all inputs of a build of Debian or Ubuntu.
type debianPlan struct {
	os                      string
	release, codename, arch string
	lines                   []string // apt sources of the image
	proxy                   string
	epoch                   time.Time
	// disk is true if the result is a bootable disk, and false if it is a
	// container's root filesystem.
	disk bool
	debs string // the directory with the packages of earlier builds
}

// diskSize is the size of a built disk in bytes. A machine's root disk is
// larger, and the guest grows its filesystem at the first start.
const diskSize = 1536 << 20

// diskAdditions returns the packages that a disk contains besides debianPackages,
// with the distribution's kernel for virtual machines.
func diskAdditions(os, arch string) []string {
	kernel := "linux-image-cloud-" + arch
	if os == ubuntuArchive.os {
		kernel = "linux-image-virtual"
	}
	return []string{
		kernel, "initramfs-tools", "zstd", "kmod", "e2fsprogs", "util-linux-extra",
		"qemu-guest-agent", "cloud-guest-utils", "fdisk",
	}
}

// current reports whether the release's cloud-init supports LXD's datasource
// and networkd. If not, cloud-init reads the NoCloud seed that LXD writes from
// the image's templates, and ifupdown configures the network. Guests of Incus
// also read that seed, because they have no socket at the place where the
// datasource looks.
func (p debianPlan) current() bool { return p.codename != "bullseye" }

func debianRecipe(d distribution, release, codename string) recipe {
	return recipe{
		name:     d.name + "/" + release,
		packages: []string{"mmdebstrap", "squashfs-tools", d.keyring},
		space:    1536 << 20,
		disks:    codename != "bullseye",
		archive:  &d,
		make: func(ctx context.Context, c *Cache, j job) (product, error) {
			from, err := d.archives(c.o.AptDir, c.o.Mirrors)
			if err != nil {
				return product{}, err
			}
			return c.makeDebian(ctx, j, debianPlan{
				os: d.os, release: release, codename: codename, arch: c.o.Arch, lines: from.lines(codename), proxy: c.o.Mirrors.Proxy,
				// No time in the image is later than the last midnight, so that
				// two builds on one day can be identical.
				epoch: c.o.Clock().UTC().Truncate(24 * time.Hour),
				disk:  j.format == FormatDisk,
				debs:  c.debsOf(d, from.main),
			})
		},
	}
}

func (c *Cache) makeDebian(ctx context.Context, j job, p debianPlan) (product, error) {
	hooks, tmp, root := filepath.Join(j.work, "hooks"), filepath.Join(j.work, "tmp"), filepath.Join(j.work, "root")
	if err := writeEmbedded("debian", hooks, 0o700); err != nil {
		return product{}, err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return product{}, err
	}
	if err := c.offerDebs(ctx, p.debs, j.work); err != nil {
		return product{}, fmt.Errorf("cannot use the packages of earlier builds: %w", err)
	}
	if p.proxy != "" {
		text := fmt.Sprintf("Acquire::http::Proxy %q;\n", p.proxy)
		if err := os.WriteFile(filepath.Join(j.work, proxyFile), []byte(text), 0o600); err != nil {
			return product{}, err
		}
	}
	if p.disk {
		if err := addEmbedded("debian/disk", hooks, 0o700); err != nil {
			return product{}, err
		}
	}
	var failed error
	steps := debianProgress{report: func(message string, percent int) {
		if strings.HasPrefix(message, "downloading") && failed == nil {
			failed = failpoint.Hit(failpoint.LXDImageDownloading)
		}
		j.report(message, percent)
	}}
	if _, err := c.runner(j).Run(ctx, p.command(j.work, hooks, tmp, root, steps.line)); err != nil {
		return product{}, err
	}
	if failed != nil {
		return product{}, failed
	}
	if fresh, err := c.keepDebs(ctx, p.debs, j.work); err != nil {
		c.log.Warn("packages of a build cannot be kept; the next build downloads them again", "reason", err.Error())
	} else {
		c.log.Debug("packages of a build kept", "new", fresh)
	}
	if err := p.finish(root); err != nil {
		return product{}, err
	}
	if p.disk {
		j.report("making the disk", 92)
		disk := filepath.Join(j.work, "disk.qcow2")
		err := MakeDisk(ctx, c.runner(j), Disk{Root: root, Size: diskSize, Arguments: "net.ifnames=0 quiet systemd.show_status=0"}, j.work, disk)
		return product{paths: []string{disk}}, err
	}
	j.report("packing the root filesystem", 92)
	return c.pack(ctx, j, root, imageInfo{
		arch: p.arch, os: p.os, release: p.codename, epoch: p.epoch, seed: true,
		description: fmt.Sprintf("%s %s (%s) %s built by hostler", p.os, p.release, p.codename, p.arch),
	})
}

// command returns the command that runs mmdebstrap in separate namespaces. So
// its mounts end when it ends, and the kernel kills all its processes when the
// outermost process ends.
func (p debianPlan) command(work, hooks, tmp, root string, line func(string)) run.Command {
	include := slices.Concat(debianPackages, []string{"systemd-resolved"})
	if !p.current() {
		include = slices.Concat(debianPackages, []string{"ifupdown", "isc-dhcp-client", "resolvconf"})
	}
	if p.disk {
		include = append(include, diskAdditions(p.os, p.arch)...)
	}
	args := []string{
		"--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc", "--",
		paths.Mmdebstrap, "--mode=root", "--format=directory", "--variant=minbase", "--verbose",
		"--architectures=" + p.arch,
		"--include=" + strings.Join(include, ","),
		"--hook-dir=" + hooks, "--skip=essential/unlink", // customize90.sh removes the packages
		`--aptopt=Acquire::Languages "none"`,
		`--aptopt=APT::Install-Recommends "false"`,
		`--aptopt=Acquire::Retries "3"`,
		`--aptopt=Acquire::http::Timeout "30"`,
	}
	if p.proxy != "" {
		args = append(args, "--aptopt="+filepath.Join(work, proxyFile))
	}
	args = append(args, p.codename, root, "-")
	return run.Command{
		Path: paths.Unshare, Args: args, Dir: work, OnLine: line, Timeout: buildTimeout,
		// The sources go to stdin, because every user of the host can read the
		// arguments, and addresses may hold passwords.
		Stdin: strings.NewReader(strings.Join(p.lines, "\n") + "\n"),
		Env:   []string{"TMPDIR=" + tmp, "SOURCE_DATE_EPOCH=" + strconv.FormatInt(p.epoch.Unix(), 10)},
	}
}

// finish writes hostler's own files into the root. os.Root prevents links in
// the packages from leading to files outside the root.
func (p debianPlan) finish(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.New(fault.Transient, "mmdebstrap left no root filesystem: %v", err)
	}
	defer func() { _ = root.Close() }()
	files := map[string]string{
		"cloud.cfg":        "etc/cloud/cloud.cfg.d/99-hostler.cfg",
		"locale":           "etc/default/locale",
		"20-eth.network":   "etc/systemd/network/20-eth.network",
		"wait-online.conf": "etc/systemd/system/systemd-networkd-wait-online.service.d/hostler.conf",
		"wait-online.sh":   "usr/local/lib/hostler/wait-online.sh",
	}
	if !p.current() {
		files["udev-trigger.conf"] = "etc/systemd/system/systemd-udev-trigger.service.d/hostler.conf"
	}
	if !p.disk {
		// Only root may read the seed, because its user-data may hold
		// passwords.
		if err := errors.Join(root.MkdirAll("var/lib/cloud/seed", 0o700), root.Chmod("var/lib/cloud/seed", 0o700)); err != nil {
			return err
		}
	}
	for from, to := range files {
		data, err := embedded.ReadFile("debian/files/" + from)
		if err != nil {
			return err
		}
		if !p.current() {
			data = bytes.Replace(data, []byte("[LXD, NoCloud, None]"), []byte("[NoCloud, None]"), 1)
			data = bytes.Replace(data, []byte("[networkd]"), []byte("[eni]"), 1)
		}
		if p.disk {
			data = bytes.Replace(data, []byte("[LXD, NoCloud, None]"), []byte("[NoCloud, None]"), 1)
		}
		if err := root.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(to, data, 0o600); err != nil {
			return err
		}
		// Chmod sets the modes whatever the umask is.
		if err := errors.Join(root.Chmod(filepath.Dir(to), 0o755), root.Chmod(to, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// writeEmbedded writes the plain files of an embedded directory to a new
// directory.
func writeEmbedded(from, dir string, mode os.FileMode) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return addEmbedded(from, dir, mode)
}

// addEmbedded writes the plain files of an embedded directory into an existing
// directory.
func addEmbedded(from, dir string, mode os.FileMode) error {
	entries, err := embedded.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := embedded.ReadFile(from + "/" + e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), data, mode); err != nil {
			return err
		}
	}
	return nil
}
