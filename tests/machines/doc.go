// Package machines tests LXD and Incus machines as a user sees them: the real
// daemon and command of hostler with a private hypervisor.
package machines
