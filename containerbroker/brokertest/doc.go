// Package brokertest holds Run(), the conformance suite for all brokers, and
// Fake, an in-memory hypervisor. A Fake keeps state, can be made to fail and
// prints itself.
package brokertest
