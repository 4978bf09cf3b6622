//go:build integration

// Package bench measures what hostler promises of its speed and its size. A
// figure is printed with its target and never fails: machines differ. Where
// something else does the same work, both are measured turn by turn in one
// run, and the figure is their ratio.
package bench

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// ratio prints ours against theirs, round by round.
func ratio(name string, ours, theirs []time.Duration, target float64) {
	quotients := make([]float64, len(ours))
	for i := range ours {
		quotients[i] = float64(ours[i]) / float64(theirs[i])
	}
	middle := median(quotients)
	fmt.Printf("figure: %s: ratio min %.2f median %.2f max %.2f; target ≤ %.2f: %s\n",
		name, slices.Min(quotients), middle, slices.Max(quotients), target, verdict(middle <= target))
	fmt.Printf("        hostler %s; the other %s; load %s\n", seconds(ours), seconds(theirs), load())
}

// bound prints a figure that is measured against a fixed bound.
func bound(name string, value, target float64, unit, detail string) {
	fmt.Printf("figure: %s: %.4g %s, ratio %.2f to the target ≤ %g %s: %s\n", name, value, unit, value/target, target, unit, verdict(value <= target))
	fmt.Printf("        %s; load %s\n", detail, load())
}

// exactly prints a figure that is to be the same in each round.
func exactly(name string, values []int, target int, unit, detail string) {
	least, most := slices.Min(values), slices.Max(values)
	fmt.Printf("figure: %s: min %d max %d %s, ratio %.2f to the target = %d %s: %s\n",
		name, least, most, unit, float64(most)/float64(target), target, unit, verdict(least == target && most == target))
	fmt.Printf("        %s; load %s\n", detail, load())
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "MISSED"
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// percentile is the smallest value that p of a hundred do not exceed.
func percentile[T cmp.Ordered](values []T, p int) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max((len(sorted)*p+99)/100-1, 0)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func seconds(all []time.Duration) string {
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = fmt.Sprintf("%.2f", d.Seconds())
	}
	return strings.Join(texts, " ") + " s"
}

// load is the machine's load average: a figure of a busy machine is a bad one.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
