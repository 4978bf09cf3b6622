//go:build integration && !long

package crash_test

// long is whether the whole campaign runs, or a sample of it.
const long = false
