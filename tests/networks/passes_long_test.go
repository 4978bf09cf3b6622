//go:build integration && long

package networks

// passes is how many of the worker's passes the churn lasts.
const passes = 1000
