// Package hosts tries the Debian package on a systemd host of each release:
// installation, a first machine of each type, network, storage, a reboot of the
// host, upgrade and purge.
package hosts
