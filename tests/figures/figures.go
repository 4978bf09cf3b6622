// Package figures records what the benchmarks measure. A benchmark prints each
// figure and, under `make bench`, adds it to a file; the suite turns the file
// into a table and compares it with that of an earlier run.
package figures

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Variable names the environment variable with the path of the file.
const Variable = "HOSTLER_FIGURES"

// Figure is a measured value with its target, the most that is good. Without a
// peer, Peer is 0 and Ratio is Ours in relation to the target.
type Figure struct {
	Work string `json:"work"`
	// Ours and Peer are medians in Unit.
	Ours float64 `json:"ours"`
	Peer float64 `json:"peer,omitempty"`
	Unit string  `json:"unit"`
	// Ratio is the median over the rounds, Least and Most its spread.
	Ratio  float64 `json:"ratio"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	Target float64 `json:"target"`
	// Detail is a sentence for the reader, e.g. the values of all rounds.
	Detail string `json:"detail,omitempty"`
	// Load is the host's load average at the end: a figure of a busy host is a
	// bad figure.
	Load string `json:"load"`
}

// Ratio makes the figure of work that a peer did too, round by round. The target
// bounds the ratio.
func Ratio(work string, ours, peer []time.Duration, target float64) Figure {
	quotients := make([]float64, len(ours))
	for i := range ours {
		quotients[i] = float64(ours[i]) / float64(peer[i])
	}
	return Figure{
		Work: work, Ours: Median(ours).Seconds(), Peer: Median(peer).Seconds(), Unit: "s",
		Ratio: Median(quotients), Least: slices.Min(quotients), Most: slices.Max(quotients), Target: target,
		Detail: fmt.Sprintf("hostler %s; the other %s", Seconds(ours), Seconds(peer)),
	}
}

// Bound makes the figure of a value that the target bounds.
func Bound(work string, value, target float64, unit, detail string) Figure {
	ratio := value / target
	if target == 0 {
		ratio = 1 + value
		if value == 0 {
			ratio = 0
		}
	}
	return Figure{Work: work, Ours: value, Unit: unit, Ratio: ratio, Least: ratio, Most: ratio, Target: target, Detail: detail}
}

// Met reports whether the figure meets its target.
func (f Figure) Met() bool {
	if f.Peer > 0 {
		return f.Ratio <= f.Target
	}
	return f.Ours <= f.Target
}

func (f Figure) verdict() string {
	if f.Met() {
		return "met"
	}
	return "MISSED"
}

// Record prints a figure and adds it to the file, if one is named.
func Record(f Figure) error {
	text, _ := os.ReadFile("/proc/loadavg")
	f.Load, _, _ = strings.Cut(string(text), " ")
	target := fmt.Sprintf("%g", f.Target)
	if f.Peer == 0 {
		target += " " + f.Unit
	}
	fmt.Printf("figure: %s: %.4g %s, ratio min %.2f median %.2f max %.2f; target ≤ %s: %s\n        %s; load %s\n",
		f.Work, f.Ours, f.Unit, f.Least, f.Ratio, f.Most, target, f.verdict(), f.Detail, f.Load)
	path := os.Getenv(Variable)
	if path == "" {
		return nil
	}
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// Read reads the figures of a file, one JSON object a line.
func Read(path string) ([]Figure, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var all []Figure
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var f Figure
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return nil, fmt.Errorf("cannot read the figures in %s: %w", path, err)
		}
		all = append(all, f)
	}
	return all, lines.Err()
}

// Table prints the figures, a row each.
func Table(out io.Writer, all []Figure) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "WORK\tOURS\tPEER\tRATIO\tSPREAD\tTARGET\tVERDICT")
	for _, f := range all {
		peer, target := "-", fmt.Sprintf("≤ %g", f.Target)
		if f.Peer > 0 {
			peer = fmt.Sprintf("%.4g %s", f.Peer, f.Unit)
		} else {
			target += " " + f.Unit
		}
		_, _ = fmt.Fprintf(w, "%s\t%.4g %s\t%s\t%.2f\t%.2f–%.2f\t%s\t%s\n", f.Work, f.Ours, f.Unit, peer, f.Ratio, f.Least, f.Most, target, f.verdict())
	}
	return w.Flush()
}

// noise is the change of a ratio that counts as no change.
const noise = 0.10

// Compare prints the figures whose ratio grew by more than a tenth since an
// earlier run, and those that the earlier run has alone.
func Compare(out io.Writer, before, after []Figure) {
	now := map[string]Figure{}
	for _, f := range after {
		now[f.Work] = f
	}
	slower := 0
	for _, old := range before {
		f, found := now[old.Work]
		switch {
		case !found:
			_, _ = fmt.Fprintf(out, "not measured now: %s\n", old.Work)
		case f.Ratio > old.Ratio*(1+noise) && f.Ratio > old.Most:
			slower++
			_, _ = fmt.Fprintf(out, "slower: %s: ratio %.2f → %.2f (%.4g → %.4g %s)\n", f.Work, old.Ratio, f.Ratio, old.Ours, f.Ours, f.Unit)
		}
	}
	_, _ = fmt.Fprintf(out, "%d of %d figures got slower\n", slower, len(before))
}

// Median returns the middle value, the upper of two.
func Median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Seconds writes durations in seconds.
func Seconds(all []time.Duration) string {
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = fmt.Sprintf("%.2f", d.Seconds())
	}
	return strings.Join(texts, " ") + " s"
}
