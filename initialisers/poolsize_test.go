package initialisers

import "testing"

func TestPoolSize(t *testing.T) {
	for free, want := range map[uint64]uint64{
		4000 * GiB: 500, 2000 * GiB: 500, 100 * GiB: 50, 16 * GiB: 10, 12 * GiB: 10, 11 * GiB: 9, 5 * GiB: 3, GiB: 1, 0: 1,
	} {
		if got := PoolSize(free); got != want*GiB {
			t.Errorf("%d GiB free: %d GiB, want %d", free/GiB, got/GiB, want)
		}
	}
}
