//go:build integration && !long

package conffiles

const modelSequences = 2000
