package spec

// kind is the type of a node.
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

// node is a value of a document, from YAML or JSON, with its place. It has no
// anchors, aliases or tags, because the reader refuses them.
type node struct {
	kind         kind
	value        string // text is without its quotes; numbers and booleans are as written
	line, column int
	// broken is set for a value with a reported error; the node does not hold the
	// intended value.
	broken bool
	// block is set for a block scalar (|), whose text begins on the next line.
	block  bool
	items  []*node  // entries of a list
	fields []*field // keys of a mapping, in the order of the file
}

// field is a key of a mapping with its value.
type field struct {
	key   *node
	value *node
}

// is reports whether the node exists and has the kind.
func (n *node) is(k kind) bool { return n != nil && n.kind == k }
