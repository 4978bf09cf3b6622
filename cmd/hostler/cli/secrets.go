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
	// values are the parts of user-data that other texts may repeat. known masks
	// them; it is nil until it is needed.
	values map[string]bool
	known  *strings.Replacer
}

// secretWord is a part of names of secrets, e.g. of AWS_SECRET_ACCESS_KEY.
const secretWord = `passw(?:or)?d|passphrase|secret|token|credential|(?:api|access|private)[-_]?key`

var secretKey = regexp.MustCompile(`(?i)user-?data|vendor-?data|` + secretWord)

// secretForms are texts with a secret in the last group: the value after a
// secret's name, the user and the query of a URL, an HTTP authorization and a
// private key.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(?:` + secretWord + `)[a-z0-9_-]*\\?["']?\s*[:=]\s*` +
		`(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'\\]+|["'\\][^\n]*)`),
	regexp.MustCompile(`://([^/\s"']+)@`),
	regexp.MustCompile(`://[^\s"'?#]*\?([^\s"'#]+)`),
	regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+([a-z0-9+/_.=-]{8,})`),
	regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$))`),
}

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

// mask stands for each byte of a secret until the secret is replaced.
const mask = "\x00"

var masks = regexp.MustCompile(mask + "+")

// replacer returns the replacer that masks the values that were learned.
func (c *concealer) replacer() *strings.Replacer {
	if c.known != nil {
		return c.known
	}
	// The longest first, so that no rest of a value stays.
	all := slices.SortedFunc(maps.Keys(c.values), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(all))
	for _, v := range all {
		pairs = append(pairs, v, strings.Repeat(mask, len(v)))
	}
	c.known = strings.NewReplacer(pairs...)
	return c.known
}

// text removes the secrets of a text. It looks for learned values and for the
// forms of secrets in the same text: user-data may hold a word like "password",
// without which no form would be found.
func (c *concealer) text(s string) string {
	masked := []byte(c.replacer().Replace(s))
	for _, form := range secretForms {
		for _, at := range form.FindAllStringSubmatchIndex(s, -1) {
			at = at[len(at)-2:]
			copy(masked[at[0]:at[1]], strings.Repeat(mask, at[1]-at[0]))
		}
	}
	return masks.ReplaceAllString(string(masked), concealed)
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
