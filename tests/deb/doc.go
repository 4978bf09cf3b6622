// Package deb tests the Debian package: its contents, its units and its life on
// a host.
package deb
