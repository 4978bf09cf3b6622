package initialisers

// GiB is the number of bytes in a GiB.
const GiB = 1 << 30

// The bounds of a new pool's size. The pool's file is sparse, so its size is a
// limit for all containers together and not the space that it takes at once.
const (
	poolLeast   = 10 * GiB
	poolMost    = 500 * GiB
	poolReserve = 2 * GiB // the part of a small disk that stays free for the host
)

// PoolSize returns the size, in bytes, of a new pool on a disk with free bytes
// of free space. It is half of free, within the bounds and in whole GiB.
func PoolSize(free uint64) uint64 {
	size := min(max(free/2, poolLeast), poolMost)
	if free < size+poolReserve {
		size = max(free, poolReserve+GiB) - poolReserve
	}
	return size / GiB * GiB
}
