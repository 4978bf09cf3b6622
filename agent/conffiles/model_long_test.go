//go:build long

package conffiles

const modelSequences = 50000
