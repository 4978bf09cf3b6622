// Package brokertest holds the conformance suite for all brokers (Run), and
// Fake, an in-memory hypervisor that keeps state, can be made to fail and
// prints itself.
package brokertest
