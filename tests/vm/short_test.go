//go:build integration && !long

package vm_test

// cuts is how often the power goes.
const cuts = 3
