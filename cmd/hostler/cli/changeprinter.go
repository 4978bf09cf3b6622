package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// changePrinter prints the rows that changed between two sets of rows.
type changePrinter struct {
	app *app
	// names are the names of the rows to follow. If it is empty, all rows are
	// followed.
	names []string
	// several is set when the command follows more than one kind; each line
	// then names the kind of its row.
	several bool
	kinds   map[string]*watchedKind
	last    string // the kind of the last printed line
}

// watchedKind holds the rows of a kind that were printed last, and the widths
// of their columns.
type watchedKind struct {
	seen   map[string]watched
	widths []int
}

// watched is a row in its printed forms.
type watched struct {
	name  string
	data  json.RawMessage
	cells []string
}

func (p *changePrinter) print(l *listing) error {
	c, started := p.kinds[l.kind]
	keep, missing := l.find(p.names)
	if !started {
		if len(missing) > 0 {
			return l.absent(missing)
		}
		c = &watchedKind{seen: map[string]watched{}}
		p.kinds[l.kind] = c
	}
	view := l.view(keep, p.app.env.Now(), p.app.output == outWide)
	data, err := elements(l.data(keep))
	if err != nil {
		return err
	}
	var changed []watched
	there := map[string]bool{}
	for n, i := range keep {
		row := watched{name: l.names[i], data: data[n], cells: view.rows[n]}
		key := row.name
		for there[key] {
			key += " again" // two stores may have an image of the same name
		}
		there[key] = true
		if old, ok := c.seen[key]; !ok || !bytes.Equal(old.data, row.data) {
			changed = append(changed, row)
		}
		c.seen[key] = row
	}
	for _, key := range slices.Sorted(maps.Keys(c.seen)) {
		if there[key] {
			continue
		}
		gone, err := c.seen[key].gone(view.head)
		if err != nil {
			return err
		}
		changed = append(changed, gone)
		delete(c.seen, key)
	}
	if len(changed) == 0 && (started || p.several) {
		return nil
	}
	view.rows = nil
	for _, row := range changed {
		view.add(row.cells...)
	}
	return p.show(l.kind, c, changed, view)
}

func (p *changePrinter) show(kind string, c *watchedKind, rows []watched, t *table) error {
	w := p.app.env.Stdout
	switch p.app.output {
	case outJSON:
		for _, row := range rows {
			data := row.data
			if p.several {
				data = slices.Concat([]byte(`{"kind":"`+kind+`",`), data[1:])
			}
			if err := writeJSONLine(w, data); err != nil {
				return err
			}
		}
		return nil
	case outName:
		for _, row := range rows {
			if _, err := io.WriteString(w, kind+"/"+line(row.name)+"\n"); err != nil {
				return err
			}
		}
		return nil
	}
	if p.several && p.last != kind {
		if p.last != "" {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, p.app.colours().bold(strings.ToUpper(plural(kind))))
	}
	t.widths, t.bare = c.widths, p.last == kind
	p.last = kind
	err := t.write(w, 0, p.app.colours().cell)
	c.widths = t.widths
	return err
}

// elements returns the elements of an array, each as JSON.
func elements(array any) ([]json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(array); err != nil {
		return nil, fmt.Errorf("cannot print as json: %w", err)
	}
	var all []json.RawMessage
	return all, json.Unmarshal(b.Bytes(), &all)
}

// gone returns the last line for a removed row. The line has the row's former
// cells, but the message "gone".
func (r watched) gone(head []string) (watched, error) {
	r.cells = slices.Clone(r.cells)
	column := slices.Index(head, "MESSAGE")
	if column < 0 {
		column = 1
	}
	r.cells[column] = "gone"
	if i := slices.Index(head, "ADDRESS"); i >= 0 {
		r.cells[i] = ""
	}
	var err error
	r.data, err = buried(r.data)
	return r, err
}

// buried sets the life of a removed JSON object to "dead" and its message to
// "gone". It keeps the order of the keys.
func buried(object json.RawMessage) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	pairs, marks := []string{}, map[string]string{"life": `"dead"`, "message": `"gone"`}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		name, _ := key.(string)
		mark, ok := marks[name]
		switch delete(marks, name); {
		case ok:
			value = json.RawMessage(mark)
		case name == "percent":
			continue
		case name == "addresses":
			value = json.RawMessage("[]")
		}
		pairs = append(pairs, fmt.Sprintf("%q:%s", name, value))
	}
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		pairs = append(pairs, fmt.Sprintf("%q:%s", name, marks[name]))
	}
	return json.RawMessage("{" + strings.Join(pairs, ",") + "}"), nil
}
