//go:build !integration && !long

package agent

// modelSequences is a sample for the inner loop.
const modelSequences = 100
