// Package next runs tests of the Incus driver on the Incus of Debian testing,
// which hosts of the next release have.
package next
