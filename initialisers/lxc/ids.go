package lxc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"hostler/internal/atomicfile"
	"hostler/internal/fault"
	"hostler/internal/paths"
	"hostler/internal/run"
)

// guestIDs is how many ids a guest has, and firstID the first id that is never
// a user's of the host.
const (
	guestIDs = 65536
	firstID  = 100000
)

// giveIDs adds a row of root to the files that have no usable row. The range
// begins behind all other ranges.
func (i *Initialiser) giveIDs() error {
	if _, _, err := i.opts.IDs(); err == nil {
		return nil
	}
	for _, path := range []string{i.opts.Paths.SubUIDs(), i.opts.Paths.SubGIDs()} {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot give root a range of ids: %w", err)
		}
		text, usable := withRow(string(data))
		if usable {
			continue
		}
		if err := atomicfile.Write(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("cannot give root a range of ids: %w", err)
		}
	}
	_, _, err := i.opts.IDs()
	return err
}

// withRow returns the text of such a file with a row of root. usable is true if
// the text has one already.
func withRow(text string) (with string, usable bool) {
	next := uint64(firstID)
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(fields[1], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		if (fields[0] == "root" || fields[0] == "0") && count >= guestIDs {
			return text, true
		}
		next = max(next, first+count)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return fmt.Sprintf("%sroot:%d:%d\n", text, next, guestIDs), false
}

// The AppArmor profile of guests, which hostler's package ships.
const (
	profile     = "lxc-hostler"
	profileFile = "/etc/apparmor.d/lxc-hostler"
)

// apparmorOn reports whether the kernel confines programs, and this host may
// have profiles of its own.
func (i *Initialiser) apparmorOn() bool {
	return strings.HasPrefix(i.read("/sys/module/apparmor/parameters/enabled"), "Y") &&
		i.read("/sys/kernel/security/apparmor/profiles") != ""
}

// profileLoaded reports whether guests can have their profile, or need none.
func (i *Initialiser) profileLoaded() bool {
	return !i.apparmorOn() || strings.Contains("\n"+i.read("/sys/kernel/security/apparmor/profiles"), "\n"+profile+" (")
}

func (i *Initialiser) loadProfile(ctx context.Context, progress func(string)) error {
	if i.profileLoaded() {
		return nil
	}
	progress("loading the AppArmor profile " + profile)
	_, err := i.opts.Full.Run(ctx, run.Command{Path: paths.AppArmorParser, Args: []string{"-r", "-W", profileFile}})
	if err != nil || !i.profileLoaded() {
		return fault.New(fault.NeedsOperator, "cannot load the AppArmor profile of guests: %v; see `apparmor_parser -r %s`", err, profileFile)
	}
	return nil
}
