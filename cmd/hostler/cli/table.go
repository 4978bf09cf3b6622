package cli

import (
	"encoding/csv"
	"io"
	"strings"
)

// table holds rows of text under headings. Cells are printed on a single line,
// with control characters escaped.
type table struct {
	head []string
	rows [][]string
	// widths are the minimum widths of the columns. write() stores the widths
	// that it used.
	widths []int
	// bare omits the headings.
	bare bool
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints aligned columns. limit is the width of the terminal; 0 means no
// limit. With a limit, write shortens the last column to keep each row on a
// single line.
func (t *table) write(w io.Writer, limit int, paint func(column, cell string) string) error {
	var rows [][]string
	if !t.bare {
		rows = append(rows, t.head)
	}
	for _, r := range t.rows {
		rows = append(rows, printable(r))
	}
	if t.widths == nil {
		t.widths = make([]int, len(t.head))
	}
	for _, r := range rows {
		for i, c := range r {
			t.widths[i] = max(t.widths[i], cells(c))
		}
	}
	var b strings.Builder
	for n, r := range rows {
		used := 0
		for i, c := range r {
			last := i == len(r)-1
			if last && limit > used+8 {
				c = cut(c, limit-used)
			}
			text := c
			if paint != nil && (n > 0 || t.bare) {
				text = paint(t.head[i], c)
			}
			b.WriteString(text)
			if !last {
				b.WriteString(strings.Repeat(" ", t.widths[i]-cells(c)+2))
				used += t.widths[i] + 2
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable escapes the cells of a row and replaces an empty cell by a dash.
func printable(row []string) []string {
	out := make([]string, len(row))
	for i, c := range row {
		out[i] = line(c)
		if out[i] == "" {
			out[i] = "-"
		}
	}
	return out
}

// writeCSV prints the same columns as RFC 4180 text. Control characters are
// escaped. An empty cell stays empty.
func (t *table) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	if err := c.Write(t.head); err != nil {
		return err
	}
	for _, r := range t.rows {
		out := make([]string, len(r))
		for i, cell := range r {
			out[i] = line(cell)
		}
		if err := c.Write(out); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
