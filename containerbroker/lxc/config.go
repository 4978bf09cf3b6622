package lxc

import (
	"slices"
	"strings"
)

// config is an instance's config file. It keeps all lines, e.g. comments and an
// administrator's own settings.
type config struct{ lines []string }

// maxConfig bounds a config in bytes.
const maxConfig = 256 << 10

// parseConfig never fails: liblxc judges the lines. See config.wrong.
func parseConfig(text string) config {
	if text = strings.TrimSuffix(text, "\n"); text == "" {
		return config{}
	}
	return config{strings.Split(text, "\n")}
}

// String returns the file's text.
func (c config) String() string {
	if len(c.lines) == 0 {
		return ""
	}
	return strings.Join(c.lines, "\n") + "\n"
}

func (c config) clone() config { return config{slices.Clone(c.lines)} }

// setting splits a line as liblxc does. ok is false for comments and blank
// lines.
func setting(line string) (key, value string, ok bool) {
	line = strings.Trim(line, " \t\r\v\f")
	if line == "" || line[0] == '#' {
		return "", "", false
	}
	key, value, ok = strings.Cut(line, "=")
	key, value = strings.Trim(key, " \t"), strings.Trim(value, " \t")
	if n := len(value); n >= 2 && value[0] == value[n-1] && (value[0] == '"' || value[0] == '\'') {
		value = value[1 : n-1]
	}
	return key, value, ok
}

// all returns the values of a key. An empty value clears the values before it.
func (c config) all(key string) (values []string) {
	for _, line := range c.lines {
		if !strings.Contains(line, key) { // most lines of a listing
			continue
		}
		k, v, ok := setting(line)
		switch {
		case !ok || k != key:
		case v == "":
			values = nil
		default:
			values = append(values, v)
		}
	}
	return values
}

// get returns the last value of a key, or "".
func (c config) get(key string) string {
	values := c.all(key)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// set gives a key one value, at the place of its first line. An empty value
// removes the key. It keeps a line that has this value already.
func (c *config) set(key, value string) {
	if values := c.all(key); value != "" && len(values) == 1 && values[0] == value {
		return
	}
	at := c.removeIf(func(k, _ string) bool { return k == key })
	if value == "" {
		return
	}
	if at < 0 {
		at = len(c.lines)
	}
	c.lines = slices.Insert(c.lines, at, key+" = "+value)
}

// add appends a line of a key that may have several values, unless the value is
// there.
func (c *config) add(key, value string) {
	if !slices.Contains(c.all(key), value) {
		c.lines = append(c.lines, key+" = "+value)
	}
}

// removeIf removes the settings for which drop returns true. It returns the
// place of the first of them, or -1.
func (c *config) removeIf(drop func(key, value string) bool) int {
	first := -1
	var kept []string
	for _, line := range c.lines {
		if k, v, ok := setting(line); ok && drop(k, v) {
			if first < 0 {
				first = len(kept)
			}
			continue
		}
		kept = append(kept, line)
	}
	c.lines = kept
	return first
}

// remove removes one value of a key.
func (c *config) remove(key, value string) {
	c.removeIf(func(k, v string) bool { return k == key && v == value })
}
