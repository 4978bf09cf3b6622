//go:build !integration && !long

package agent

// modelSequences is the number of sequences in a short run.
const modelSequences = 100
