//go:build long

package agent

const modelSequences = 50000
