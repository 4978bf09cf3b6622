//go:build !integration && !long && !race

package conffiles

// modelSequences is the number of sequences in a short run.
const modelSequences = 100
