// Package matrix records what passed on which release, and prints it as a
// table.
package matrix

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Variable names the file to which tests append their cells.
const Variable = "HOSTLER_TEST_MATRIX"

// Cell is the result of one trial on one release.
type Cell struct {
	Release, Name string
	// Result is pass, refused or FAILED.
	Result string
	// Reason is hostler's own, of a refusal.
	Reason string `json:",omitempty"`
}

// Record appends a cell to the file of Variable; without one it does nothing.
func Record(c Cell) error {
	path := os.Getenv(Variable)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(c), f.Close())
}

// Read returns the recorded cells. A missing file has none.
func Read(path string) (cells []Cell, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var c Cell
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		cells = append(cells, c)
	}
	return cells, nil
}

// Print writes the table: a row for each release, a column for each trial, and
// below it the reasons of refusals. A trial that did not run is "-".
func Print(w io.Writer, releases []string, cells []Cell) error {
	var names []string
	found := map[[2]string]Cell{}
	for _, c := range cells {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
		found[[2]string{c.Release, c.Name}] = c
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, strings.Join(append([]string{"release"}, names...), "\t"))
	var reasons []string
	for _, r := range releases {
		row := []string{r}
		for _, name := range names {
			c, ran := found[[2]string{r, name}]
			if !ran {
				c.Result = "-"
			}
			if c.Reason != "" {
				reasons = append(reasons, fmt.Sprintf("%s %s %s: %s", r, name, c.Result, c.Reason))
			}
			row = append(row, c.Result)
		}
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, reason := range reasons {
		if _, err := fmt.Fprintln(w, reason); err != nil {
			return err
		}
	}
	return nil
}
