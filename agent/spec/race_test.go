//go:build race

package spec

// The race detector slows parsing down and causes additional copies.
const slower = 8
