//go:build integration && long

package images

var debianReleases = []string{"11", "12", "13"}
