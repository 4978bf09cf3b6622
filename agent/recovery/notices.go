package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// maxNotices is the number of notices about the store's history that are kept.
const maxNotices = 10

// The parts of a notice about a quarantined store that stand around its path.
const (
	beforePath = "the store was moved to "
	afterPath  = " and replaced by an empty store: "
)

// quarantined returns the notice about a store that was moved to path.
func quarantined(path, reason string) string {
	return fmt.Sprintf("%s%s%s%s; remove that file when you need it no more", beforePath, path, afterPath, reason)
}

// Current returns the newest of the notices, without those about quarantined
// stores that were removed and without repetitions.
func Current(notices []string) (current []string) {
	for _, text := range slices.Backward(notices) {
		if len(current) < maxNotices && !slices.Contains(current, text) && !ended(text) {
			current = append(current, text)
		}
	}
	slices.Reverse(current)
	return current
}

// ended reports whether a notice is about a quarantined store that was removed.
func ended(text string) bool {
	path, _, about := strings.Cut(text, afterPath)
	path, moved := strings.CutPrefix(path, beforePath)
	if !about || !moved {
		return false
	}
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
