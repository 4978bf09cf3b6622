//go:build !race

package spec

const slower = 1
