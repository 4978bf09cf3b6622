package spec

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"hostler/internal/near"
)

// maxUserData is the maximum size of user-data in bytes. Every way of passing
// user-data to a guest supports this size.
const maxUserData = 64 << 10

const cloudConfig = "#cloud-config"

// userDataForms are the first words by which cloud-init recognises the format
// of user-data (its manual, "User-data formats").
var userDataForms = []string{
	cloudConfig, "#!", "#include", "#cloud-boothook", "#part-handler", "## template: jinja",
}

// userData checks that cloud-init will recognise the user's user-data. Errors
// name places inside the user-data and never quote it, because it may hold
// secrets.
func (c *checker) userData(at, s string) {
	if !c.ok(at) || !c.has(at) {
		return
	}
	first, _, _ := strings.Cut(s, "\n")
	first = strings.TrimRight(first, " \r")
	switch {
	case len(s) > maxUserData:
		c.bad(at, "the user-data is %d bytes long, more than the %d KiB allowed; fetch large files from inside the guest", len(s), maxUserData>>10)
	case strings.TrimSpace(s) == "":
		c.bad(at, "the user-data is empty; remove the key or write something like #cloud-config under it")
	case looksLikeCloudConfig(first):
		c.bad(at, "the first line must be exactly %s; cloud-init takes no other spelling", cloudConfig)
	case first == cloudConfig || strings.HasPrefix(first, cloudConfig+" "):
		c.cloudConfig(at, s)
	case isMIME(s):
		if err := multipart(s); err != "" {
			c.bad(at, "%s; a single script or #cloud-config is written without MIME", err)
		}
	case !knownForm(s):
		c.bad(at, "cloud-init does not recognise the first line; begin with %s, with #! for a script, or with a MIME header", cloudConfig)
	}
}

func knownForm(s string) bool {
	return slices.ContainsFunc(userDataForms, func(form string) bool { return strings.HasPrefix(s, form) })
}

func isMIME(s string) bool {
	start := strings.ToLower(s[:min(len(s), 16)])
	return strings.HasPrefix(start, "content-type:") || strings.HasPrefix(start, "mime-version:")
}

// multipart describes the fault of a multipart MIME message. It returns "" if
// the message is valid.
func multipart(s string) string {
	m, err := mail.ReadMessage(strings.NewReader(s))
	if err != nil {
		return "the user-data looks like a MIME message but cannot be read as MIME"
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") || params["boundary"] == "" {
		return "a MIME message needs a Content-Type of multipart/… with a boundary"
	}
	return ""
}

// looksLikeCloudConfig matches misspelt headers, e.g. "# cloud-config" and
// "#cloud_config", which cloud-init ignores without an error.
func looksLikeCloudConfig(line string) bool {
	if !strings.HasPrefix(line, "#") || line == cloudConfig || strings.HasPrefix(line, cloudConfig+"-") {
		return false
	}
	return near.Normal(strings.TrimLeft(line, "# ")) == "cloudconfig"
}

// cloudConfig checks that a #cloud-config is a YAML map. It does not check the
// keys, whose meaning only cloud-init knows.
func (c *checker) cloudConfig(at, s string) {
	r := &reader{src: newSource("", s), seen: map[*node]map[string]*node{}}
	var doc yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(s))
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		r.syntax([]byte(s), err)
		e := r.errs[0]
		if unknownAnchor.MatchString(err.Error()) { // in user-data, aliases are allowed
			e.Message = "an alias (*) has no anchor (&) before it"
		}
		c.inside(at, s, e.Line, e.Column, e.Message)
		return
	}
	if first, _, _ := strings.Cut(s, "\n"); len(doc.Content) == 0 && strings.TrimSpace(strings.TrimPrefix(first, cloudConfig)) != "" {
		c.bad(at, "the #cloud-config holds only a comment, which cloud-init ignores; write \"user-data: |\" so that the line breaks are kept")
		return
	}
	if r.more(decoder) {
		c.inside(at, s, r.errs[0].Line, r.errs[0].Column, r.errs[0].Message)
		return
	}
	if len(doc.Content) > 0 && doc.Content[0].Kind != yaml.MappingNode && doc.Content[0].ShortTag() != "!!null" {
		c.inside(at, s, doc.Content[0].Line, doc.Content[0].Column, "must be a map (one \"key: value\" per line)")
	}
}

// inside reports an error at a place within user-data. For a block scalar the
// error has the place in the file; otherwise the message names the line.
func (c *checker) inside(at, s string, line, column int, message string) {
	n := c.places[at]
	if !n.block {
		c.bad(at, "the #cloud-config is invalid in its line %s: %s", strconv.Itoa(line), message)
		return
	}
	place := &node{line: n.line + line, column: column}
	if place.line <= len(c.src.lines) {
		text := strings.Split(s, "\n")[line-1]
		if indent := strings.Index(c.src.lines[place.line-1], strings.TrimRight(text, "\r")); indent > 0 {
			place.column += utf8.RuneCountInString(c.src.lines[place.line-1][:indent])
		}
	}
	c.failed[at] = true
	c.errs = append(c.errs, &Error{
		File: c.src.file, Line: place.line, Column: place.column, Field: at,
		Message: fmt.Sprintf("the #cloud-config is invalid: %s", message),
	})
}
