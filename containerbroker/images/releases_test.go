//go:build integration && !long

package images

// debianReleases are those that are built and started. The long campaigns also
// take the oldest.
var debianReleases = []string{"12", "13"}
