//go:build integration && long

package vm_test

const cuts = 30
