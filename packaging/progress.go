package packaging

import (
	"fmt"
	"strconv"
	"strings"

	"hostler/internal/failpoint"
)

// watcher turns apt's status lines into sentences. apt writes the lines to
// APT::Status-Fd; for the format see README.progress-reporting in apt's
// documentation.
type watcher struct {
	what     string
	progress func(string)

	last     string
	percent  int
	begun    bool // dpkg has started
	errors   []string
	hit      map[failpoint.Point]bool
	failures []error
}

func newWatcher(what string, progress func(string)) *watcher {
	return &watcher{what: what, progress: progress, percent: -1, hit: map[failpoint.Point]bool{}}
}

// status handles a line of the form KIND:PACKAGE:PERCENT:TEXT.
func (w *watcher) status(line string) {
	parts := strings.SplitN(line, ":", 4)
	if len(parts) != 4 {
		return
	}
	kind, name, text := parts[0], parts[1], strings.TrimSpace(parts[3])
	// A package of a foreign architecture is written as NAME:ARCH, which shifts
	// the fields.
	number, err := strconv.ParseFloat(parts[2], 64)
	if err != nil {
		if percent, rest, found := strings.Cut(text, ":"); found {
			if number, err = strconv.ParseFloat(percent, 64); err == nil {
				text = strings.TrimSpace(rest)
			}
		}
	}
	if err != nil || number < 0 || number > 100 {
		number = 0
	}
	// Any line shows that the download has begun.
	w.point(failpoint.InitDownload)
	switch kind {
	case "dlstatus":
		w.say(fmt.Sprintf("downloading packages for %s", w.what), int(number))
	case "pmstatus":
		w.begun = true
		// dpkg's states would be better than these texts, but apt does not pass the
		// states on. The texts are untranslated in our environment.
		switch {
		case strings.HasPrefix(text, "Unpacking "):
			w.point(failpoint.InitUnpack)
		case strings.HasPrefix(text, "Configuring "):
			w.point(failpoint.InitPostinst)
		}
		w.say(fmt.Sprintf("installing %s: %s", w.what, lowerFirst(text)), int(number))
	case "pmerror":
		w.begun = true
		w.errors = append(w.errors, name+": "+text)
	}
}

// say reports a new text, or the same text if the percentage has grown by at
// least five points.
func (w *watcher) say(text string, percent int) {
	if text == w.last && percent < w.percent+5 {
		return
	}
	w.last, w.percent = text, percent
	w.progress(fmt.Sprintf("%s (%d %%)", text, percent))
}

func (w *watcher) point(p failpoint.Point) {
	if w.hit[p] {
		return
	}
	w.hit[p] = true
	if err := failpoint.Hit(p); err != nil {
		w.failures = append(w.failures, err)
	}
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
