//go:build !integration && !long

package conffiles

// modelSequences is the number of sequences in a short run.
const modelSequences = 100
