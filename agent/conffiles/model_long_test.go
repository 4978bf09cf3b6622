//go:build long && !race

package conffiles

const modelSequences = 50000
