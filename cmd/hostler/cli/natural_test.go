package cli

import (
	"slices"
	"testing"
)

func TestNaturalOrder(t *testing.T) {
	names := []string{"node-10", "web", "node-2", "node-1", "a1b2", "a1b10", "node-02", "node"}
	slices.SortFunc(names, natural)
	if want := []string{"a1b2", "a1b10", "node", "node-1", "node-02", "node-2", "node-10", "web"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}
