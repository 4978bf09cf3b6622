package packaging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// listsOld is the age at which package lists are fetched again before an
// installation. Older lists name packages that mirrors have deleted.
const listsOld = 7 * 24 * time.Hour

// updateTimeout bounds fetching the lists; apt has no limit for all mirrors
// together.
const updateTimeout = 10 * time.Minute

// Apt is Debian's package manager.
type Apt struct {
	paths  paths.Paths
	runner run.Runner
	proxy  string
	log    *slog.Logger
}

var _ Manager = (*Apt)(nil)

// NewApt returns the apt of the host below p.Root. proxy is the URL of an
// HTTP proxy for packages, empty for none.
func NewApt(p paths.Paths, runner run.Runner, proxy string, log *slog.Logger) *Apt {
	return &Apt{paths: p, runner: runner, proxy: proxy, log: log}
}

// Missing implements Manager.
func (a *Apt) Missing(names []string) ([]string, error) {
	state, err := readState(a.paths.DpkgStatus(), a.paths.DpkgUpdates())
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range names {
		if !state.installed[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// Unfinished implements Manager. The mark file is durable before apt starts.
func (a *Apt) Unfinished() bool {
	_, err := os.Lstat(a.mark())
	return err == nil
}

func (a *Apt) mark() string { return filepath.Join(a.paths.StateDir, "installing-packages") }

// Install implements Manager.
func (a *Apt) Install(ctx context.Context, names []string, opts Options, progress func(string)) error {
	missing, err := a.Missing(names)
	if err != nil {
		return err
	}
	if len(missing) == 0 && !a.Unfinished() {
		return nil
	}
	if err := atomicfile.Write(a.mark(), []byte(strings.Join(names, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	if err := a.mend(ctx, progress); err != nil {
		return err
	}
	if missing, err = a.Missing(names); err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := a.install(ctx, missing, opts, progress); err != nil {
			return fault.New(fault.Transient, "cannot install %s: %w", strings.Join(missing, ", "), err)
		}
		if missing, err = a.Missing(names); err != nil {
			return err
		}
		if len(missing) > 0 {
			return fault.New(fault.Transient, "cannot install %s: apt-get reported success, but dpkg does not list them", strings.Join(missing, ", "))
		}
	}
	return atomicfile.Remove(a.mark())
}

// wait returns when no package manager runs: neither that of an agent that was
// killed nor that of another program.
func (a *Apt) wait(ctx context.Context, progress func(string)) error {
	if runner, ok := a.runner.(run.Awaiter); ok {
		if err := runner.Await(ctx, progress); err != nil {
			return err
		}
	}
	return waitForLocks(ctx, a.paths.PackageLocks(), progress)
}

// mend finishes the packages that dpkg left half-way, e.g. because apt, the
// agent or the host was killed. A remaining failure is not an error of mend:
// the installation that follows reports it, or does not need the package.
func (a *Apt) mend(ctx context.Context, progress func(string)) error {
	if err := a.wait(ctx, progress); err != nil {
		return err
	}
	state, err := readState(a.paths.DpkgStatus(), a.paths.DpkgUpdates())
	if err != nil || len(state.broken) == 0 {
		return err
	}
	progress("finishing an interrupted installation of packages: " + strings.Join(state.broken, ", "))
	_, err = a.runner.Run(ctx, run.Command{
		Path: paths.Dpkg, Args: []string{"--force-confdef", "--force-confold", "--configure", "-a"},
		Env: environment(), NoKill: true, OnLine: a.line,
	})
	if err != nil {
		a.log.Warn("an interrupted installation could not be finished yet", "error", err)
	}
	if state, err = readState(a.paths.DpkgStatus(), a.paths.DpkgUpdates()); err != nil || len(state.broken) == 0 {
		return err
	}
	// A package that was killed while being unpacked is unpacked again; apt
	// does that only for packages given by name. --fix-broken installs missing
	// dependencies.
	args := append([]string{"--fix-broken", "--no-remove", "--reinstall", "install", "--"}, state.halfUnpacked...)
	if err := a.aptGet(ctx, nil, args...); err != nil {
		a.log.Warn("an interrupted installation could not be finished yet", "error", err)
	}
	return ctx.Err()
}

// install runs a single apt-get for all names. It fetches the lists first if
// they are missing or old. It also fetches them after a failure before the
// first change, because the mirror may have newer packages than the lists.
func (a *Apt) install(ctx context.Context, names []string, opts Options, progress func(string)) error {
	fresh := false
	if age, have := a.listsAge(); !have || age > listsOld {
		err := a.update(ctx, progress)
		if err != nil && !have {
			return err
		}
		fresh = err == nil
	}
	for {
		if err := a.wait(ctx, progress); err != nil {
			return err
		}
		w := newWatcher(strings.Join(names, ", "), progress)
		progress("installing " + w.what)
		// None of the names is fully installed, so --reinstall affects only
		// half-unpacked packages.
		args := []string{"--no-remove", "--reinstall"}
		if opts.NoRecommends {
			args = append(args, "--no-install-recommends")
		}
		err := a.aptGet(ctx, w, append(append(args, "install", "--"), names...)...)
		switch {
		case err == nil:
			return errors.Join(w.failures...)
		case ctx.Err() != nil:
			return err
		case len(w.errors) > 0:
			return fmt.Errorf("%s (%w)", strings.Join(w.errors, "; "), err)
		case w.begun:
			return err
		}
		if _, held, _ := findHolder(a.paths.PackageLocks()); held {
			continue // another process took the lock between our check and apt's
		}
		if fresh {
			return err
		}
		if err := a.update(ctx, progress); err != nil {
			return err
		}
		fresh = true
	}
}

func (a *Apt) update(ctx context.Context, progress func(string)) error {
	if err := a.wait(ctx, progress); err != nil {
		return err
	}
	progress("fetching the lists of packages")
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	if err := a.aptGet(ctx, nil, "update"); err != nil {
		return fault.New(fault.Transient, "cannot fetch the lists of packages: %w", err)
	}
	return nil
}

// aptGet runs apt-get without questions. It keeps changed configuration files
// and waits a little for a lock. It is never killed, because that would leave
// dpkg half-way.
func (a *Apt) aptGet(ctx context.Context, w *watcher, args ...string) error {
	flags := []string{
		"--assume-yes", "--quiet",
		"-o", "Dpkg::Options::=--force-confdef",
		"-o", "Dpkg::Options::=--force-confold",
		"-o", "Dpkg::Use-Pty=0",
		"-o", "DPkg::Lock::Timeout=60",
		"-o", "Acquire::Retries=3",
	}
	if a.proxy != "" {
		// Every user of the host can read the arguments, and the address may hold
		// a password.
		text := fmt.Sprintf("Acquire::http::Proxy %q;\nAcquire::https::Proxy %q;\n", a.proxy, a.proxy)
		if err := atomicfile.Write(a.proxyFile(), []byte(text), 0o600); err != nil {
			return err
		}
		flags = append(flags, "--config-file", a.proxyFile())
	}
	c := run.Command{Path: paths.AptGet, Env: environment(), NoKill: true}
	if w != nil {
		flags = append(flags, "-o", "APT::Status-Fd=3")
		c.OnStatus = w.status
	}
	c.Args = append(flags, args...)
	c.OnLine = a.line
	_, err := a.runner.Run(ctx, c)
	return err
}

func (a *Apt) proxyFile() string { return filepath.Join(a.paths.StateDir, "apt-proxy.conf") }

func (a *Apt) line(line string) { a.log.Debug("The package manager said a line.", "line", line) }

// environment keeps maintainer scripts from asking questions, and needrestart
// from restarting services.
func environment() []string {
	return []string{
		"DEBIAN_FRONTEND=noninteractive",
		"DEBCONF_NONINTERACTIVE_SEEN=true",
		"APT_LISTCHANGES_FRONTEND=none",
		"NEEDRESTART_SUSPEND=1",
	}
}

// listsAge returns the age of the newest package list, and whether a list
// exists.
func (a *Apt) listsAge() (time.Duration, bool) {
	entries, err := os.ReadDir(a.paths.AptLists())
	if err != nil {
		return 0, false
	}
	var newest time.Time
	for _, e := range entries {
		if !strings.Contains(e.Name(), "_Packages") {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return time.Since(newest), !newest.IsZero()
}
