package cli

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// who says who may do what. The agent answers everybody without the right
// alike, and so in a few words.
const who = "members of the group hostler may look, members of hostler-admin may change and see consoles"

// refused says whether the agent refused the person; that its socket cannot be
// opened is told with its mend already.
func refused(err error) bool {
	return fault.Is(err, fault.Forbidden) && !errors.Is(err, fs.ErrPermission)
}

// near turns the agent's word that something is not there into one that names
// what is called nearly so.
func near(ctx context.Context, agent Agent, r reference, err error) error {
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

// together is several failures as one, nil without any.
func together(ctx context.Context, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	all := fail(exitError, "")
	var texts []string
	for _, err := range errs {
		f := explain(ctx, err)
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
