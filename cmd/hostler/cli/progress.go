package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressLine is the progress of a machine or another followed object.
type progressLine struct {
	// name is the text that is shown for the object. of is the object.
	name    string
	of      reference
	text    string
	verdict verdict
	percent *int
}

// progress shows the progress of several objects.
type progress interface {
	update(lines []progressLine)
	note(text string)
	// tick updates the shown time every second, until the caller calls stop.
	tick(ctx context.Context) (stop func())
	end()
}

// progress returns liveLines on a terminal and plainLines elsewhere. With -q it
// returns a progress without output. The lines go to standard error, so that
// standard output can be piped.
func (a *app) progress() progress {
	switch {
	case a.quiet:
		return silence{}
	case a.env.Term.Messages() && a.env.Getenv("TERM") != "dumb":
		return &liveLines{w: a.env.Stderr, now: a.env.Now, size: a.env.Term.Size, started: a.env.Now(), colours: a.colours()}
	}
	return &plainLines{w: a.env.Stderr, now: a.env.Now, started: a.env.Now(), last: map[string]string{}}
}

type silence struct{}

func (silence) update([]progressLine)       {}
func (silence) note(string)                 {}
func (silence) tick(context.Context) func() { return func() {} }
func (silence) end()                        {}

// plainLines prints a line for each change, with the elapsed time. A percentage
// counts as a change only in steps of ten.
type plainLines struct {
	w       io.Writer
	now     func() time.Time
	started time.Time
	last    map[string]string
}

func (p *plainLines) update(lines []progressLine) {
	for _, l := range lines {
		key := l.text
		if l.percent != nil {
			key = fmt.Sprintf("%s#%d", strings.Map(dropDigits, l.text), *l.percent/10)
		}
		if p.last[l.name] == key {
			continue
		}
		p.last[l.name] = key
		fmt.Fprintf(p.w, "[%4s] %s: %s\n", short(p.now().Sub(p.started)), line(l.name), line(l.text))
	}
}

func (p *plainLines) note(text string) {
	fmt.Fprintf(p.w, "[%4s] %s\n", short(p.now().Sub(p.started)), line(text))
}

func (p *plainLines) tick(context.Context) func() { return func() {} }
func (p *plainLines) end()                        {}

func dropDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}

// liveLines keeps a line per object at the bottom of a terminal and rewrites
// these lines in place.
type liveLines struct {
	w       io.Writer
	now     func() time.Time
	size    func() (width, height int)
	started time.Time
	colours colours

	mu    sync.Mutex
	lines []progressLine
	drawn int
	extra string
	final bool
}

func (p *liveLines) update(lines []progressLine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines, p.extra = lines, ""
	p.draw()
}

func (p *liveLines) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.extra = text
	p.draw()
}

func (p *liveLines) tick(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				p.mu.Lock()
				p.draw()
				p.mu.Unlock()
			}
		}
	}()
	return func() { cancel(); <-done }
}

// end prints all lines a last time if they did not fit the terminal.
func (p *liveLines) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, high := p.size()
	if p.final = len(p.lines) > max(high-3, 5); p.final {
		p.draw()
	}
}

// draw rewrites the lines. If the terminal is too low for all lines, it draws
// the most important lines; see chosen().
func (p *liveLines) draw() {
	wide, high := p.size()
	if wide < 20 {
		wide = 80
	}
	room := max(high-3, 5)
	show, hiddenLines := p.lines, 0
	if len(show) > room && !p.final {
		show, hiddenLines = chosen(show, room), len(p.lines)-room
	}
	names := 0
	n := map[verdict]int{}
	for _, l := range p.lines {
		names = max(names, cells(line(l.name)))
		n[l.verdict]++
	}
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	p.drawn = 0
	put := func(text string, painter func(string) string) {
		b.WriteString("\r\x1b[K" + painter(cut(text, wide-1)) + "\n")
		p.drawn++
	}
	plain := func(s string) string { return s }
	for _, l := range show {
		painter := plain
		switch l.verdict {
		case asDeclared:
			painter = p.colours.green
		case failed:
			painter = p.colours.red
		}
		put(pad(line(l.name), names)+"  "+line(l.text), painter)
	}
	foot := fmt.Sprintf("%d of %d done, %s", n[asDeclared], len(p.lines), short(p.now().Sub(p.started)))
	if n[failed] > 0 {
		foot += fmt.Sprintf(", %d failed", n[failed])
	}
	if hiddenLines > 0 {
		foot += fmt.Sprintf(" (%d more not shown)", hiddenLines)
	}
	if p.extra != "" {
		foot += " - " + line(p.extra)
	}
	put(foot, p.colours.bold)
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(p.w, b.String())
}

// chosen returns the n most important lines. Failed objects come first, then
// objects in progress, then objects that are done.
func chosen(lines []progressLine, n int) []progressLine {
	var out []progressLine
	for _, v := range []verdict{failed, undecided, asDeclared} {
		for _, l := range lines {
			if l.verdict == v && len(out) < n {
				out = append(out, l)
			}
		}
	}
	return out
}
