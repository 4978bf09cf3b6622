// Package crash kills agents and hypervisors at every crash point, and then
// checks that nothing was lost, doubled, left over or disturbed. It drives
// hostler by its commands, and compares with the daemons and the kernel.
package crash
