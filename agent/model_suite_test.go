//go:build integration && !long

package agent

const modelSequences = 2000
