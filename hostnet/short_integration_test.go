//go:build integration && !long

package hostnet_test

const long = false
