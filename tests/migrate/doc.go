// Package migrate tests the move of machines from a real LXD to a real Incus,
// with an agent that is killed at each step.
package migrate
