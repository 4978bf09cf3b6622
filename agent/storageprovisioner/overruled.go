package storageprovisioner

import (
	"fmt"
	"slices"
	"strings"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/mountoption"
)

// overruledNotice is the key of the notice about overruled mount options.
const overruledNotice = "overruled mount options"

// overruled sets or clears the notice about declared mount options that the
// host overrules.
func (w *Worker) overruled(l look) {
	const most = 10
	var texts []string
	for i := range l.desired.Entities {
		e := &l.desired.Entities[i]
		if e.Kind != spec.KindFilesystem || e.Life != state.Alive {
			continue
		}
		if text := mountoption.Warning(e.Filesystem.MountedAs(), e.Filesystem.MountOptions); text != "" {
			texts = append(texts, e.key()+": "+text)
		}
	}
	slices.Sort(texts)
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most], fmt.Sprintf("%d more filesystems", more))
	}
	w.Notice(overruledNotice, strings.Join(texts, "; "))
}
