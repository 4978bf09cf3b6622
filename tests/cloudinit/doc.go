// Package cloudinit drives hostler's part handler through the code of cloud-init
// of several releases.
package cloudinit
