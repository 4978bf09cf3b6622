package lxd

import (
	"slices"
	"strings"
	"testing"

	"hostler/internal/fault"
	"hostler/packaging"
)

func TestPackages(t *testing.T) {
	set, err := packagesOn(packaging.Release{ID: "debian", Version: "12"})
	if err != nil || !slices.Contains(set.Names, "lxd") {
		t.Errorf("%v, %v", set, err)
	}
	if _, err := packagesOn(packaging.Release{ID: "ubuntu", Version: "24.04"}); !fault.Is(err, fault.NeedsOperator) || !strings.Contains(err.Error(), "snap install lxd") {
		t.Errorf("got %v", err)
	}
	if _, err := packagesOn(packaging.Release{}); !fault.Is(err, fault.NeedsOperator) {
		t.Errorf("got %v", err)
	}
}
