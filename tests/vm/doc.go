// Package vm tests hostler on virtual machines under QEMU, whose power a test
// can take away. HOSTLER_TEST_RELEASE chooses their release.
package vm
