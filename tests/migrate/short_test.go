//go:build integration && !long

package migrate

// rounds is how many machines the agent is killed for at every step.
const rounds = 1
