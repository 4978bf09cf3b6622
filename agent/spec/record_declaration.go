package spec

// DeclarationRecord is the record of a declaration: the whole parsed document
// and its origin.
type DeclarationRecord struct {
	// Source is "apply" or the path of a conf.d file.
	Source string `json:"source"`
	// From is the path of the applied file; empty: standard input, or not known.
	From string `json:"from,omitempty"`
	// Lines holds the line of each object (KIND/NAME) in its file.
	Lines    map[string]int `json:"lines,omitempty"`
	Document Declaration    `json:"document"`
}

// Hold says why an object that no document declares still exists.
type Hold string

// The values of Hold.
const (
	// HoldRemoval: its removal needs consent, or another object still uses it.
	HoldRemoval Hold = "removal"
	// HoldLost: all files of conf.d were gone, or the directory was on another
	// file system: the removal needs consent even with removals: obey.
	HoldLost Hold = "lost"
)
