// Package vm tests hostler on Debian machines under QEMU, whose power a test
// can take away.
package vm
