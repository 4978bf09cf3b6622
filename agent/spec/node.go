package spec

// kind is what a node of a document is.
type kind int

const (
	null kind = iota
	text
	number
	boolean
	list
	mapping
)

func (k kind) String() string {
	return [...]string{"nothing", "text", "a number", "true or false", "a list", "a map"}[k]
}

// node is a value of a document, from YAML or JSON, with its place. There are
// no anchors, aliases or tags any more.
type node struct {
	kind         kind
	value        string // of text, number and boolean: as written
	line, column int
	// broken is set for a value that an error was told of; what stands here
	// is not what was meant.
	broken bool
	// block is set for a block scalar (|): its text begins on the next line.
	block  bool
	items  []*node  // of a list
	fields []*field // of a mapping, in the order written
}

// field is one key of a mapping with its value.
type field struct {
	key   *node
	value *node
}

// is reports whether there is a node and what it is.
func (n *node) is(k kind) bool { return n != nil && n.kind == k }
