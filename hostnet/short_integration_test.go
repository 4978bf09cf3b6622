//go:build integration && !long

package hostnet

const long = false
