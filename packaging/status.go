package packaging

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// dpkgState is the content of dpkg's status file.
type dpkgState struct {
	// installed holds the fully installed packages, and the names that they
	// provide.
	installed map[string]bool
	// broken holds the packages that dpkg left half-way.
	broken []string
	// halfUnpacked holds the broken packages whose files must be unpacked
	// again.
	halfUnpacked []string
}

// readState reads dpkg's status file. If the file is absent, no package is
// installed. updates is the folder of dpkg's journal. A file in this folder
// shows that dpkg was interrupted and that the status file is out of date.
func readState(status, updates string) (dpkgState, error) {
	f, err := os.Open(status)
	if errors.Is(err, fs.ErrNotExist) {
		return dpkgState{installed: map[string]bool{}}, nil
	}
	if err != nil {
		return dpkgState{}, fmt.Errorf("cannot read the list of installed packages: %w", err)
	}
	defer func() { _ = f.Close() }()
	state, err := parseStatus(f)
	if err != nil {
		return dpkgState{}, fmt.Errorf("cannot read the list of installed packages: %s: %w", status, err)
	}
	entries, err := os.ReadDir(updates)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return dpkgState{}, fmt.Errorf("cannot read the list of installed packages: %w", err)
	}
	if len(entries) > 0 {
		state.broken = append(state.broken, "dpkg's records")
	}
	return state, nil
}

// parseStatus reads paragraphs of "Key: value" lines. It ignores lines with
// other keys than it needs, so such lines cause no errors.
func parseStatus(r io.Reader) (dpkgState, error) {
	state := dpkgState{installed: map[string]bool{}}
	var name, status, provides string
	done := func() {
		words := strings.Fields(status) // want, flag, state
		if name != "" && len(words) == 3 {
			switch words[2] {
			case "installed":
				if words[1] == "reinstreq" {
					state.broken = append(state.broken, name)
				}
				state.installed[name] = true
				for p := range strings.SplitSeq(provides, ",") {
					if p, _, _ = strings.Cut(strings.TrimSpace(p), " "); p != "" {
						state.installed[p] = true
					}
				}
			case "half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending":
				state.broken = append(state.broken, name)
			}
			if words[1] == "reinstreq" || words[2] == "half-installed" {
				state.halfUnpacked = append(state.halfUnpacked, name)
			}
		}
		name, status, provides = "", "", ""
	}
	// Use ReadString, because lines such as descriptions may be longer than
	// bufio.Scanner allows.
	reader := bufio.NewReader(r)
	for {
		line, err := reader.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return state, err
		}
		trimmed := strings.TrimRight(line, "\r\n")
		key, value, _ := strings.Cut(trimmed, ":")
		switch key {
		case "":
			if trimmed == "" {
				done()
			}
		case "Package":
			name = strings.TrimSpace(value)
		case "Status":
			status = value
		case "Provides":
			provides = value
		}
		if err != nil {
			done()
			return state, nil
		}
	}
}
