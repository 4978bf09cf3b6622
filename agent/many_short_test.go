//go:build !long

package agent

const manyMachines = 100
