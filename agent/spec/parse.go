package spec

import (
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"hostler/internal/fault"
)

// Version is the version of the declaration grammar.
const Version = 1

// namePattern is the form of every name: objects and declarations.
const namePattern = `[a-z][a-z0-9-]{0,62}`

// machinePattern is the form of the name of a machine.
const machinePattern = `[a-z]([a-z0-9-]{0,61}[a-z0-9])?`

var machineForm = regexp.MustCompile(`^` + machinePattern + `$`)

var nameForm = regexp.MustCompile(`^` + namePattern + `$`)

// Parse reads and checks one declaration, YAML or JSON. name is the file's
// stem, or its path: it stands in the errors, and its stem names a declaration
// that has no name of its own. The first line may be #hostler-config, which
// lets people and editors see what the file is.
//
// The error is fault.Invalid and holds Errors: everything that is wrong, with
// places, sorted by them.
func Parse(name string, content []byte) (Declaration, error) {
	return ParseAmong(name, content, Others{})
}

// ParseAmong is Parse for a document that stands beside others: it may refer
// to their objects and must not claim what they have, e.g. a port of the host.
func ParseAmong(name string, content []byte, others Others) (Declaration, error) {
	decl, _, err := parse(name, content, others)
	return decl, err
}

// ParseAlone is Parse for a document whose references may lead to other
// documents that are not known yet. lines tells where each object (KIND/NAME)
// stands.
func ParseAlone(name string, content []byte) (decl Declaration, lines map[string]int, err error) {
	return parse(name, content, Others{Open: true})
}

func parse(name string, content []byte, others Others) (Declaration, map[string]int, error) {
	if name == "-" {
		name = stdin
	}
	src, root, errs := read(name, content)
	if root == nil {
		return Declaration{}, nil, fault.Wrap(fault.Invalid, errs.sorted(name))
	}
	d := newDecoder(src, errs)
	var decl Declaration
	d.decode(root, reflect.ValueOf(&decl).Elem(), "")
	if root.kind == mapping {
		c := &checker{decoder: d, decl: &decl, others: others}
		c.header(stem(name))
		c.objects()
	}
	if len(d.errs) > 0 {
		return Declaration{}, nil, fault.Wrap(fault.Invalid, d.errs.sorted(name))
	}
	return decl, d.objectLines(), nil
}

// stdin names standard input, which has no file name that could name a
// declaration.
const stdin = "stdin"

// objectLines are the lines on which the objects (KIND/NAME) are declared.
func (d *decoder) objectLines() map[string]int {
	lines := map[string]int{}
	for _, kind := range []string{KindNetwork, KindVolume, KindFilesystem, KindMachine} {
		for _, name := range d.names(kind + "s") {
			lines[kind+"/"+name] = d.places["key "+kind+"s."+name].line
		}
	}
	return lines
}

// stem is a file's name without folder and the endings of declarations.
func stem(name string) string {
	base := filepath.Base(name)
	for _, ending := range []string{".yaml", ".yml", ".json"} {
		if s, ok := strings.CutSuffix(base, ending); ok {
			return s
		}
	}
	return base
}

// checker checks a decoded declaration against what cannot be seen in one
// value alone.
type checker struct {
	*decoder
	decl   *Declaration
	others Others
	// formatted holds the places of the document's filesystems on volumes, by
	// volume.
	formatted map[string]string
}

// header checks version and name, and names the declaration.
func (c *checker) header(stem string) {
	switch {
	case !c.ok("version"):
	case !c.has("version"):
		c.bad("version", "the version is missing; begin the file with \"version: 1\"")
	case c.decl.Version != Version:
		c.bad("version", "version %d is not supported by this agent; write \"version: 1\"", c.decl.Version)
	}
	switch {
	case c.has("name"):
		if c.ok("name") && !nameForm.MatchString(c.decl.Name) {
			c.bad("name", notName, quote(c.decl.Name), mendName(c.decl.Name))
		}
	case !c.ok("name"):
	case c.src.file == stdin:
		c.bad("name", "a document from standard input has no file name to be called by; add \"name: NAME\" (%s)", nameHelp)
	case !nameForm.MatchString(stem):
		c.bad("name", "the declaration has no name, and the file's name %s cannot be one; add \"name: NAME\" (%s)", quote(stem), nameHelp)
	default:
		c.decl.Name = stem
	}
}

// objects checks everything that is declared.
func (c *checker) objects() {
	c.networks()
	c.volumes()
	c.filesystems()
	c.machines()
}

const nameHelp = "lower-case letters, digits and hyphens, beginning with a letter, at most 63 characters"

const notName = "%s cannot be a name: a name is " + nameHelp + "%s"

// name checks the form of a name that is the key of a map.
func (c *checker) name(path, name string) {
	if !nameForm.MatchString(name) {
		c.badKey(path, notName, quote(name), mendName(name))
	}
}

// MachineName says whether a machine can be named so.
func MachineName(name string) bool { return machineForm.MatchString(name) }

// machineName checks a name that is a host name as well (RFC 1123).
func (c *checker) machineName(path, name string) {
	if nameForm.MatchString(name) && strings.HasSuffix(name, "-") {
		c.badKey(path, "%s cannot be the name of a machine, which is its host name too: it may not end with a hyphen%s", quote(name), mendName(strings.TrimRight(name, "-")))
		return
	}
	c.name(path, name)
}

// names returns the keys of a map in the document, in the order written, so
// that of two things that clash the later one is told of.
func (d *decoder) names(path string) []string {
	n := d.places[path]
	if n == nil {
		return nil
	}
	names := make([]string, len(n.fields))
	for i, f := range n.fields {
		names[i] = f.key.value
	}
	return names
}

// mendName proposes a name close to one that is not allowed.
func mendName(name string) string {
	mended := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r == '_' || r == '.' || r == ' ':
			return '-'
		}
		return -1
	}, strings.ToLower(name))
	if len(name) > 63 || !nameForm.MatchString(mended) {
		return ""
	}
	return "; did you mean " + quote(mended) + "?"
}

// oneOf checks a word against the words allowed.
func (c *checker) oneOf(path, word string, words ...string) bool {
	if !c.ok(path) {
		return false
	}
	switch {
	case !c.has(path):
		c.bad(path, "is missing; it is one of: %s", strings.Join(words, ", "))
		return false
	case !slices.Contains(words, word):
		c.bad(path, "%s is not one of: %s", quote(word), strings.Join(words, ", "))
		return false
	}
	return true
}
