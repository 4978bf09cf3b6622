package spec

import (
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"hostler/internal/fault"
)

// Version is the version of the declaration grammar.
const Version = 1

// namePattern is the form of the names of objects and declarations.
const namePattern = `[a-z][a-z0-9-]{0,62}`

// machinePattern is the form of the name of a machine.
const machinePattern = `[a-z]([a-z0-9-]{0,61}[a-z0-9])?`

var machineForm = regexp.MustCompile(`^` + machinePattern + `$`)

var nameForm = regexp.MustCompile(`^` + namePattern + `$`)

// Parse reads and checks a declaration in YAML or JSON. name is the file's path
// or stem. It appears in the errors, and its stem becomes the name of a
// declaration without a name. The first line may be #hostler-config, by which
// users and editors recognise the file.
//
// The error has the kind fault.Invalid and holds Errors, which lists all faults
// by their places.
func Parse(name string, content []byte) (Declaration, error) {
	return ParseAmong(name, content, Others{})
}

// ParseAmong parses a document like Parse(), and checks it together with other
// documents. The document may refer to their objects. It must not claim a thing
// that they claim, e.g. a port of the host.
func ParseAmong(name string, content []byte, others Others) (Declaration, error) {
	decl, _, err := parse(name, content, others)
	return decl, err
}

// ParseAlone parses a document like Parse(), but accepts references to
// undeclared objects, because documents that are not known yet may declare
// them. lines holds the line of each object (KIND/NAME).
func ParseAlone(name string, content []byte) (decl Declaration, lines map[string]int, err error) {
	return parse(name, content, Others{Open: true})
}

func parse(name string, content []byte, others Others) (Declaration, map[string]int, error) {
	if name == "-" {
		name = StandardInput
	}
	src, root, errs := read(name, content, "split it into several declarations")
	if root == nil {
		return Declaration{}, nil, fault.Wrap(fault.Invalid, errs.sorted(name))
	}
	d := newDecoder(src, errs)
	var decl Declaration
	d.decode(root, reflect.ValueOf(&decl).Elem(), "")
	if root.kind == mapping && !root.broken {
		c := &checker{decoder: d, decl: &decl, others: others}
		c.header(stem(name))
		c.objects()
	}
	if len(d.errs) > 0 {
		return Declaration{}, nil, fault.Wrap(fault.Invalid, d.errs.sorted(name))
	}
	return decl, d.objectLines(), nil
}

// StandardInput is the name of standard input in place of a file's name. It
// cannot be a declaration's name.
const StandardInput = "standard input"

// objectLines maps each declared object (KIND/NAME) to its line.
func (d *decoder) objectLines() map[string]int {
	lines := map[string]int{}
	for _, kind := range []string{KindNetwork, KindVolume, KindFilesystem, KindMachine} {
		for _, name := range d.names(kind + "s") {
			lines[kind+"/"+name] = d.places["key "+kind+"s."+name].line
		}
	}
	return lines
}

// stem returns a file's name without directory and extension.
func stem(name string) string {
	base := filepath.Base(name)
	for _, ending := range []string{".yaml", ".yml", ".json"} {
		if s, ok := strings.CutSuffix(base, ending); ok {
			return s
		}
	}
	return base
}

// checker checks a decoded declaration for faults that involve several values
// or other documents.
type checker struct {
	*decoder
	decl   *Declaration
	others Others
	// formatted maps volumes to the paths of the document's filesystems on them.
	formatted map[string]string
}

// header checks the version and the name. If the document has no name, it gets
// the name stem.
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
	case c.src.file == StandardInput:
		c.bad("name", "a document from standard input has no file name, so it needs a name; add \"name: NAME\" (%s)", nameHelp)
	case !nameForm.MatchString(stem):
		c.bad("name", "the declaration has no name, and the file's name %s cannot be used as its name; add \"name: NAME\" (%s)", quote(stem), nameHelp)
	default:
		c.decl.Name = stem
	}
}

// objects checks all declared objects.
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

// MachineName reports whether the name is valid for a machine.
func MachineName(name string) bool { return machineForm.MatchString(name) }

// machineName checks a name that also serves as a host name (RFC 1123).
func (c *checker) machineName(path, name string) {
	if nameForm.MatchString(name) && strings.HasSuffix(name, "-") {
		c.badKey(path, "%s cannot be the name of a machine, which is its host name too: it may not end with a hyphen%s", quote(name), mendName(strings.TrimRight(name, "-")))
		return
	}
	c.name(path, name)
}

// names returns the keys of a map in the order of the document, so that the
// later of two clashing objects gets the error.
func (d *decoder) names(path string) []string {
	n := d.places[path]
	if n == nil || n.broken {
		return nil
	}
	names := make([]string, len(n.fields))
	for i, f := range n.fields {
		names[i] = f.key.value
	}
	return names
}

// mendName returns the end of a message that proposes a valid name, e.g. my-web
// for My_web. It returns "" if no valid name is close.
func mendName(name string) string {
	mended := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r == '_' || r == '.' || r == ' ':
			return '-'
		case unicode.IsLetter(r): // without the letter it would be another word
			return unicode.ReplacementChar
		}
		return -1
	}, strings.ToLower(name))
	if len(name) > 63 || !nameForm.MatchString(mended) {
		return ""
	}
	return "; did you mean " + quote(mended) + "?"
}

// oneOf checks that a word is one of the allowed words, and reports whether it
// is.
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
