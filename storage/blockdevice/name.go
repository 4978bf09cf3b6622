package blockdevice

import (
	"strconv"
	"strings"
)

// PartitionPath returns the path of a disk's n-th partition, from 1. The kernel
// puts a p between a name that ends in a digit and the number (nvme0n1p1,
// loop0p1, md0p1), and so does kpartx for names below /dev/mapper; udev's links
// have -part instead.
func PartitionPath(disk string, n int) string {
	number := strconv.Itoa(n)
	switch {
	case strings.HasPrefix(disk, "/dev/disk/by-"):
		return disk + "-part" + number
	case disk != "" && disk[len(disk)-1] >= '0' && disk[len(disk)-1] <= '9':
		return disk + "p" + number
	}
	return disk + number
}
