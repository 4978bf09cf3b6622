//go:build integration

package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hostler/tests/figures"
)

// ratio records ours against theirs, round by round.
func ratio(name string, ours, theirs []time.Duration, target float64) {
	record(figures.Ratio(name, ours, theirs, target))
}

// bound records a figure that is measured against a fixed bound.
func bound(name string, value, target float64, unit, detail string) {
	record(figures.Bound(name, value, target, unit, detail))
}

// exactly records a figure that is to be the same in each round: its largest
// distance from the target.
func exactly(name string, values []int, target int, unit, detail string) {
	worst := 0
	for _, v := range values {
		worst = max(worst, v-target, target-v)
	}
	record(figures.Bound(name+", more or less than "+fmt.Sprint(target), float64(worst), 0, unit, detail))
}

func record(f figures.Figure) {
	if err := figures.Record(f); err != nil {
		panic(err)
	}
}

func median[T cmp.Ordered](values []T) T { return figures.Median(values) }

func seconds(all []time.Duration) string { return figures.Seconds(all) }

// percentile is the smallest value that p of a hundred do not exceed.
func percentile[T cmp.Ordered](values []T, p int) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max((len(sorted)*p+99)/100-1, 0)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
