package packaging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// listsOld is the age above which package lists are fetched again before an
// installation, because mirrors have deleted some of their packages.
const listsOld = 7 * 24 * time.Hour

// updateTimeout bounds fetching the lists; apt has no limit for all mirrors
// together.
const updateTimeout = 10 * time.Minute

// queryTimeout bounds a query, which may build apt's index of packages.
const queryTimeout = time.Minute

// Apt is Debian's package manager.
type Apt struct {
	paths  paths.Paths
	runner run.Runner
	// queries runs only commands that change nothing.
	queries run.Runner
	proxy   string
	hold    *Hold
	log     *slog.Logger
}

var _ Manager = (*Apt)(nil)

// NewApt returns the apt of the host below p.Root. runner runs the programs
// that change packages. queries runs programs that only read apt's data. proxy
// is the URL of an HTTP proxy for packages, or "". hold keeps installations back
// for cloud-init; nil does not.
func NewApt(p paths.Paths, runner, queries run.Runner, proxy string, hold *Hold, log *slog.Logger) *Apt {
	return &Apt{paths: p, runner: runner, queries: queries, proxy: proxy, hold: hold, log: log}
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

// Unavailable implements Manager. The result includes virtual names, which
// packages only provide.
func (a *Apt) Unavailable(ctx context.Context, names []string) ([]string, error) {
	if _, have := a.listsAge(); !have {
		return nil, nil
	}
	result, err := a.queries.Run(ctx, run.Command{
		Path: paths.AptCache, Args: append([]string{"policy", "--"}, names...), Timeout: queryTimeout,
	})
	if err != nil {
		return nil, fault.New(fault.Transient, "cannot read which packages apt offers: %w", err)
	}
	offered := candidates(string(result.Stdout))
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return offered[name] }), nil
}

// FetchLists implements Manager.
func (a *Apt) FetchLists(ctx context.Context, progress func(string)) error {
	if _, have := a.listsAge(); have {
		return nil
	}
	return a.update(ctx, progress)
}

// candidates returns the packages that have a candidate version in the output
// of apt-cache policy. The output has a line "name:" for each known package,
// followed by indented lines.
func candidates(policy string) map[string]bool {
	offered, name := map[string]bool{}, ""
	for line := range strings.Lines(policy) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, " ") {
			name = strings.TrimSuffix(line, ":")
		} else if version, ok := strings.CutPrefix(line, "  Candidate: "); ok && version != "(none)" {
			offered[name] = true
		}
	}
	return offered
}

// Unfinished implements Manager. The mark file is durable before apt starts.
func (a *Apt) Unfinished(names ...string) bool {
	if _, err := os.Lstat(a.mark()); err == nil {
		return true
	}
	if len(names) == 0 {
		return false
	}
	state, err := readState(a.paths.DpkgStatus(), a.paths.DpkgUpdates())
	return err == nil && slices.ContainsFunc(state.broken, func(name string) bool { return slices.Contains(names, name) })
}

func (a *Apt) mark() string { return filepath.Join(a.paths.StateDir, "installing-packages") }

// Install implements Manager.
func (a *Apt) Install(ctx context.Context, names []string, progress func(string)) error {
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
		if err := a.install(ctx, missing, progress); err != nil {
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

// wait returns when no package manager runs, whether an agent that was killed
// or another program started it, and cloud-init will start none.
func (a *Apt) wait(ctx context.Context, progress func(string)) error {
	if runner, ok := a.runner.(run.Awaiter); ok {
		if err := runner.Await(ctx, progress); err != nil {
			return err
		}
	}
	if err := a.hold.Wait(ctx, progress); err != nil {
		return err
	}
	return waitForLocks(ctx, a.paths.PackageLocks(), progress)
}

// mend finishes the packages that dpkg left half-way, e.g. because apt, the
// agent or the host was killed. It ignores a remaining failure, because the
// installation that follows reports the failure or does not need the package.
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
	// Packages whose unpacking was interrupted must be unpacked again. apt does
	// this only for packages given by name. --fix-broken installs missing
	// dependencies.
	args := append([]string{"--fix-broken", "--no-remove", "--reinstall", "--no-install-recommends", "install", "--"}, state.halfUnpacked...)
	if err := a.aptGet(ctx, nil, args...); err != nil {
		a.log.Warn("an interrupted installation could not be finished yet", "error", err)
	}
	return ctx.Err()
}

// install runs a single apt-get for all names. It fetches the lists first if
// they are missing or old. It also fetches them after a failure before the
// first change, because the mirror may have newer packages than the lists.
func (a *Apt) install(ctx context.Context, names []string, progress func(string)) error {
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
		args := []string{"--no-remove", "--reinstall", "--no-install-recommends", "install", "--"}
		err := a.aptGet(ctx, w, append(args, names...)...)
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
// and waits a little for a lock. apt-get is never killed, because a kill would
// leave dpkg half-way.
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
		// Pass the proxy in a file, because every user of the host can read the
		// arguments and the URL may contain a password.
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

// environment returns the variables that keep maintainer scripts from asking
// questions, and needrestart from restarting services.
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
