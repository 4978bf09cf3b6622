package cli

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// concealed stands for a secret in collected logs.
const concealed = "(hidden)"

// concealer removes secrets from texts and documents.
type concealer struct {
	// values are the parts of user-data that other texts may repeat. known
	// replaces them; it is nil until it is needed.
	values map[string]bool
	known  *strings.Replacer
}

var (
	secretKey  = regexp.MustCompile(`(?i)user-?data|vendor-?data|passw|passphrase|secret|token|api[-_]?key|credential|private[-_]?key`)
	urlUser    = regexp.MustCompile(`://[^/\s@"']+@`)
	assignment = regexp.MustCompile(`(?i)([a-z0-9_-]*(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|credential)s?\\?["']?\s*[:=]\s*)(\\?"[^"\\]*\\?"|'[^']*'|[^\s,;}"'\])\\]+)`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9+/_.=-]{8,}`)
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
)

// shortestSecret is the length, in bytes, from which a word of user-data is
// looked for in other texts.
const shortestSecret = 6

// learn has the concealer look for the words and the values of user-data in
// other texts, e.g. in a message of a program that failed.
func (c *concealer) learn(userData string) {
	if c.values == nil {
		c.values = map[string]bool{}
	}
	for line := range strings.Lines(userData) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, separator := range []string{": ", "= "} {
			_, value, _ := strings.Cut(line, separator)
			c.note(value)
		}
		for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"'[]{},`, r) }) {
			c.note(word)
			for _, separator := range []string{":", "="} {
				if _, value, found := strings.Cut(word, separator); found {
					c.note(value)
				}
			}
		}
	}
	c.known = nil
}

// note adds a value, unless it is short or the name of a key.
func (c *concealer) note(value string) {
	value = strings.Trim(strings.TrimSpace(value), `"'[]{},`)
	if len(value) >= shortestSecret && !strings.HasSuffix(value, ":") {
		c.values[value] = true
	}
}

// replacer returns the replacer of the values that were learned.
func (c *concealer) replacer() *strings.Replacer {
	if c.known != nil {
		return c.known
	}
	// The longest first, so that no rest of a value stays.
	all := slices.SortedFunc(maps.Keys(c.values), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(all))
	for _, v := range all {
		pairs = append(pairs, v, concealed)
	}
	c.known = strings.NewReplacer(pairs...)
	return c.known
}

// text removes the secrets of a text.
func (c *concealer) text(s string) string {
	if len(c.values) > 0 {
		s = c.replacer().Replace(s)
	}
	s = privateKey.ReplaceAllString(s, concealed)
	s = urlUser.ReplaceAllString(s, "://"+concealed+"@")
	s = bearer.ReplaceAllString(s, "$1 "+concealed)
	return assignment.ReplaceAllString(s, "${1}"+concealed)
}

// document returns a value, as it prints in JSON, without secrets: the values of
// keys that name a secret, and the secrets in all other texts.
func (c *concealer) document(v any) (any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}
	return c.tree(tree), nil
}

func (c *concealer) tree(v any) any {
	switch v := v.(type) {
	case string:
		return c.text(v)
	case []any:
		for i := range v {
			v[i] = c.tree(v[i])
		}
	case map[string]any:
		for key, value := range v {
			if secretKey.MatchString(key) && value != "" && value != nil {
				v[key] = concealed
				continue
			}
			v[key] = c.tree(value)
		}
	}
	return v
}
