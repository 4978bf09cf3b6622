package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The formats of -o.
const (
	outTable = "table"
	outWide  = "wide"
	outJSON  = "json"
	outYAML  = "yaml"
	outCSV   = "csv"
	outName  = "name"
)

// outputs is the key of the annotation that lists a command's formats. The
// first format is the default.
const outputs = "outputs"

var allOutputs = []string{outTable, outWide, outJSON, outYAML, outCSV, outName}

// prints declares the output formats of a command and returns the command.
func prints(cmd *cobra.Command, formats ...string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[outputs] = strings.Join(formats, " ")
	return cmd
}

// checkOutput refuses a format that the command does not have. If no format is
// given, it sets the command's default.
func (a *app) checkOutput(cmd *cobra.Command) error {
	formats := strings.Fields(cmd.Annotations[outputs])
	switch {
	case a.output == "" && len(formats) > 0:
		a.output = formats[0]
	case a.output == "":
	case !slices.Contains(allOutputs, a.output):
		return usage("unknown output format %q%s", a.output, didYouMean(a.output, allOutputs)).
			hint("formats are " + strings.Join(allOutputs, ", "))
	case len(formats) == 0:
		return usage("%s has no -o: it prints plain text only", commandName(cmd))
	case !slices.Contains(formats, a.output):
		return usage("%s cannot print as %s", commandName(cmd), a.output).
			hint("it can print as " + strings.Join(formats, ", "))
	}
	return nil
}

// document prints a value as JSON or YAML.
func (a *app) document(v any) error {
	if a.output == outYAML {
		return writeYAML(a.env.Stdout, v)
	}
	return writeJSON(a.env.Stdout, v)
}

// rows prints a table as CSV or as aligned columns. With -o table on a
// terminal, it shortens rows to the terminal's width.
func (a *app) rows(t *table) error {
	if a.output == outCSV {
		return t.writeCSV(a.env.Stdout)
	}
	limit := 0
	if a.output == outTable && a.env.Term.Output() {
		limit, _ = a.env.Term.Size()
	}
	return t.write(a.env.Stdout, limit, a.colours().cell)
}
