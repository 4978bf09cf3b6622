package packaging

import "hostler/internal/fault"

// The families of distributions whose packages hostler knows.
const (
	Debian = "debian"
	Ubuntu = "ubuntu"
)

// oldest is the oldest supported version of each family's own distribution.
var oldest = map[string]string{Debian: "12", Ubuntu: "22.04"}

// Sets lists the packages for a purpose by family. Later versions of a family
// are assumed to use the same names.
type Sets map[string][]string

// InAll returns Sets with the same packages in all families.
func InAll(names ...string) Sets { return Sets{Debian: names, Ubuntu: names} }

// On returns the packages for a release. If the release's family has none, or
// the release is older than the oldest supported version, the error names the
// purpose and has the kind NeedsOperator.
func (s Sets) On(r Release, purpose string) ([]string, error) {
	family := r.Family()
	names, ok := s[family]
	if !ok {
		return nil, fault.New(fault.NeedsOperator, "cannot install %s on %s: its packages there are unknown; install it yourself", purpose, r)
	}
	if r.ID == family && r.Before(oldest[family]) {
		return nil, fault.New(fault.NeedsOperator, "cannot install %s on %s, which is older than %s %s: install it yourself", purpose, r, family, oldest[family])
	}
	return names, nil
}
