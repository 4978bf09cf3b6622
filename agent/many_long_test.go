//go:build long

package agent

const manyMachines = 10_000
