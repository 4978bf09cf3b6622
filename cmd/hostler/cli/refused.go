package cli

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// who explains the permissions. The agent gives every user without permission
// the same short answer.
const who = "members of the group hostler may look, members of hostler-admin may change and see consoles"

// refused reports whether the agent denied permission. A socket that cannot be
// opened does not count, because its error already contains a remedy.
func refused(err error) bool {
	return fault.Is(err, fault.Forbidden) && !errors.Is(err, fs.ErrPermission)
}

// near replaces a NotFound error of the agent by an error that suggests similar
// names.
func near(ctx context.Context, agent agent, r reference, err error) error {
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	l, unlisted := list(ctx, agent, r.kind)
	if unlisted != nil || slices.Contains(l.names, r.name) {
		return err
	}
	f := l.absent([]string{r.name})
	f.code = exitError
	return f
}

// together joins several errors into one failure. It returns nil if there are
// no errors. An interrupt keeps its exit code.
func together(ctx context.Context, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	all := fail(exitError, "")
	var texts []string
	for _, err := range errs {
		f := explain(ctx, err)
		if f.code == exitInterrupted {
			all.code = f.code
		}
		if !slices.Contains(texts, f.text) {
			texts = append(texts, f.text)
		}
		if all.mend == "" {
			all.mend = f.mend
		}
	}
	all.text = strings.Join(texts, "\n")
	return all
}
