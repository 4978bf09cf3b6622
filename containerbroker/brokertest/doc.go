// Package brokertest holds the conformance suite that every broker passes
// (Run), and Fake, an in-memory hypervisor that holds state, can be made to
// fail and prints itself.
package brokertest
