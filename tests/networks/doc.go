// Package networks tries declared networks from outside: the real daemon, the
// real command, a real LXD and the host's own kernel.
package networks
