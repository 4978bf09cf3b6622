package packaging

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"hostler/internal/fault"
)

// Release is a distribution and its version, as in os-release(5).
type Release struct {
	ID string
	// Version is empty for a release that is not out yet, e.g. Debian testing.
	Version string
	// Like lists the distributions that this one derives from, closest first.
	Like []string
}

func (r Release) String() string {
	return cmp.Or(strings.TrimSpace(r.ID+" "+r.Version), "an unknown distribution")
}

// Family returns the distribution whose packages the release has. This is its
// own distribution or the closest one that it derives from, or "" if hostler
// knows neither.
func (r Release) Family() string {
	families := []string{Debian, Ubuntu}
	for _, id := range append([]string{r.ID}, r.Like...) {
		if slices.Contains(families, id) {
			return id
		}
	}
	return ""
}

// Notice returns the sentence for the host's status if the release is a
// derivative or its family is unknown, else "".
func (r Release) Notice() string {
	switch family := r.Family(); family {
	case "":
		return fmt.Sprintf("hostler knows no packages of %s: install the programs that it names yourself", r)
	case r.ID:
		return ""
	default:
		return fmt.Sprintf("this host runs %s, which derives from %s: hostler installs the packages that it installs on %s", r, family, family)
	}
}

// Offer returns how an administrator makes apt offer a package that no
// repository of the host has. Debian 12 has some packages only in its backports.
func (r Release) Offer() string {
	if r.ID == Debian && r.Version == "12" {
		return "add Debian's backports by `echo deb http://deb.debian.org/debian bookworm-backports main >/etc/apt/sources.list.d/backports.list`, then run `apt-get update`"
	}
	return "add one"
}

// Before reports whether the release is older than version. A release without a
// version number is newer than all versions.
func (r Release) Before(version string) bool {
	own, err := numbers(r.Version)
	if err != nil {
		return false
	}
	than, err := numbers(version)
	return err == nil && slices.Compare(own, than) < 0
}

// numbers splits a version into its numbers, e.g. 24.04 into 24 and 4.
func numbers(version string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// ReadRelease reads an os-release file.
func ReadRelease(path string) (Release, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Release{}, fault.New(fault.NeedsOperator, "cannot read this host's release: %s is missing", path)
	}
	if err != nil {
		return Release{}, fault.New(fault.Transient, "cannot read this host's release: %w", err)
	}
	var r Release
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			r.ID = value
		case "VERSION_ID":
			r.Version = value
		case "ID_LIKE":
			r.Like = strings.Fields(value)
		}
	}
	return r, nil
}
