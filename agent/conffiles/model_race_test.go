//go:build race

package conffiles

// modelSequences is small here: a sequence runs on one goroutine, and the race
// detector finds nothing more in the later sequences.
const modelSequences = 20
