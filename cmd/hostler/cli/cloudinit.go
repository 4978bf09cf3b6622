package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// liftFile exists while cloud-init waits for this command. The agent installs no
// packages while cloud-init is at work, except if this file exists, so that
// cloud-init does not wait for itself. packaging.LiftFile is the same name.
const liftFile = "run/cloud-init/hostler-waiting"

// cloudInitUnit matches the control group of a process that a unit of cloud-init
// started, e.g. 0::/system.slice/cloud-final.service.
var cloudInitUnit = regexp.MustCompile(`(?m)/cloud-(init|config|final)[a-z-]*\.service(/|$)`)

// liftHold has the agent install packages although cloud-init is at work, if
// cloud-init runs this command. The returned function ends that.
func (a *app) liftHold() (restore func()) {
	group, err := os.ReadFile(filepath.Join("/", a.env.Root, "proc/self/cgroup"))
	if err != nil || !cloudInitUnit.Match(group) {
		return func() {}
	}
	file := filepath.Join("/", a.env.Root, liftFile)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			a.remark("warning: the agent installs no packages before cloud-init has ended: " + err.Error())
		}
		return func() {}
	}
	return func() { _ = os.Remove(file) }
}
