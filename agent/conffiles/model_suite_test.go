//go:build integration && !long && !race

package conffiles

const modelSequences = 2000
