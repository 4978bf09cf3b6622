package spec

// DeclarationRecord is what is kept of a declaration: the whole document as it
// was understood, and where it came from.
type DeclarationRecord struct {
	// Source is "apply" or the path of a conf.d file.
	Source string `json:"source"`
	// From is the path of the file that was applied; empty: standard input, or
	// not known.
	From string `json:"from,omitempty"`
	// Lines holds the line of each object (KIND/NAME) in its file.
	Lines    map[string]int `json:"lines,omitempty"`
	Document Declaration    `json:"document"`
}

// Hold says why an object that no document declares is still there.
type Hold string

// The holds.
const (
	// HoldRemoval: its removal needs consent, or something still uses it.
	HoldRemoval Hold = "removal"
	// HoldLost: all files of conf.d were gone, or the folder was another file
	// system: the removal needs consent even where removals are obeyed.
	HoldLost Hold = "lost"
)
