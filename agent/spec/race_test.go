//go:build race

package spec

// The race detector makes parsing slower and copies what is not copied
// without it.
const slower = 8
