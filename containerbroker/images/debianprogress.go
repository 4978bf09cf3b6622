package images

import "strings"

// debianProgress converts mmdebstrap's output to a percentage. Each phase has a
// share of the percentage that corresponds to its measured share of the time.
type debianProgress struct {
	report Progress
	at     int // last percentage
	phase  int // index into debianPhases
	lines  int // number of dpkg's lines within the phase
}

// debianPhases are the phases of mmdebstrap. announced is how mmdebstrap's line
// at the beginning of the phase starts. text is for the user. begins is the
// percentage at which the phase begins. lines is how many lines dpkg prints in
// it.
var debianPhases = []struct {
	announced, text string
	begins, lines   int
}{
	{"I: running apt-get update", "reading the package lists", 1, 0},
	{"I: downloading packages with apt", "downloading packages", 8, 0},
	{"I: extracting archives", "unpacking the base system", 12, 0},
	{"I: installing essential packages", "installing the base system", 22, 130},
	{"I: installing remaining packages", "installing packages", 40, 250},
	{"I: running --customize-hook", "compiling and cleaning", 80, 0},
	{"I: cleaning package lists", "cleaning", 90, 0},
}

func (d *debianProgress) line(line string) {
	for i, p := range debianPhases {
		if strings.HasPrefix(line, p.announced) {
			d.phase, d.lines, d.at = i, 0, p.begins
			d.report(p.text, d.at)
			return
		}
	}
	if !strings.HasPrefix(line, "Unpacking ") && !strings.HasPrefix(line, "Setting up ") {
		return
	}
	p := debianPhases[d.phase]
	if p.lines == 0 || d.phase+1 == len(debianPhases) {
		return
	}
	d.lines++
	room := debianPhases[d.phase+1].begins - p.begins
	if now := p.begins + min(d.lines*room/p.lines, room-1); now > d.at {
		d.at = now
		d.report(p.text, d.at)
	}
}
