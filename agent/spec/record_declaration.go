package spec

// DeclarationRecord is the record of a declaration: the whole parsed document
// and its origin.
type DeclarationRecord struct {
	// Source is SourceApply, SourceStamps or the path of a conf.d file.
	Source string `json:"source"`
	// From is the path of the applied file. It is empty for standard input or if
	// the path is not known.
	From string `json:"from,omitempty"`
	// Lines holds the line of each object (KIND/NAME) in the document's file.
	Lines    map[string]int `json:"lines,omitempty"`
	Document Declaration    `json:"document"`
}

// Hold says why an object that no document declares still exists.
type Hold string

// The values of Hold.
const (
	// HoldRemoval means that the removal of the object needs consent, or that
	// another object still uses it.
	HoldRemoval Hold = "removal"
	// HoldLost means that all files of conf.d were gone, or that the directory was
	// on another file system. The removal then needs consent even with "removals:
	// obey".
	HoldLost Hold = "lost"
)
