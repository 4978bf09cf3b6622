package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// isChange reports whether a step changes anything.
func isChange(s client.Step) bool { return s.Action != "none" && s.Action != "" }

// changes returns the steps that change an object, grouped by kind and
// otherwise in the agent's order.
func changes(p client.Plan) []client.Step {
	order := []string{spec.KindContainerType, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem, spec.KindMachine}
	rank := func(s client.Step) int {
		kind, _, _ := strings.Cut(s.Object, "/")
		if i := slices.Index(order, kind); i >= 0 {
			return i
		}
		return len(order)
	}
	var out []client.Step
	for _, s := range p.Steps {
		if isChange(s) {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b client.Step) int { return rank(a) - rank(b) })
	return out
}

// mark returns the sign before a step, e.g. "+" for create and "!" for held.
func mark(s client.Step) string {
	switch {
	case s.Held != "":
		return "!"
	case s.Action == "create" || s.Action == "adopt":
		return "+"
	case s.Action == "delete" || s.Action == "release":
		return "-"
	default:
		return "~"
	}
}

// printPlan prints a line per step, with the step's changed fields below, and a
// summary. If head is set, it prints headings too.
func printPlan(w io.Writer, p client.Plan, c colours, head bool) {
	steps := changes(p)
	if len(steps) > 0 {
		var widths [4]int
		rows := make([][4]string, 0, len(steps)+1)
		if head {
			rows = append(rows, [4]string{" ", "OBJECT", "ACTION", "IMPACT"})
		}
		for _, s := range steps {
			rows = append(rows, [4]string{mark(s), line(s.Object), line(s.Action), line(string(s.Impact))})
		}
		for _, r := range rows {
			for i, t := range r {
				widths[i] = max(widths[i], cells(t))
			}
		}
		for i, r := range rows {
			n := i
			detail := "DETAIL"
			if head {
				n--
			}
			if n >= 0 {
				detail = line(steps[n].Detail)
			}
			text := fmt.Sprintf("%s %s  %s  %s  %s", r[0], pad(r[1], widths[1]), pad(r[2], widths[2]), pad(r[3], widths[3]), detail)
			fmt.Fprintln(w, c.step(r[0], strings.TrimRight(text, " ")))
			if n >= 0 {
				printStepNotes(w, steps[n])
			}
		}
	}
	if len(steps) > 0 {
		fmt.Fprintln(w, summary(steps))
	}
}

func printStepNotes(w io.Writer, s client.Step) {
	for _, ch := range s.Changes {
		text := fmt.Sprintf("    %s: %s -> %s", line(ch.Field), orNone(ch.From), orNone(ch.To))
		if ch.Impact != "" {
			text += "  (" + line(string(ch.Impact)) + ")"
		}
		if ch.Reason != "" {
			text += "  " + line(ch.Reason)
		}
		fmt.Fprintln(w, text)
	}
	if s.Held != "" {
		fmt.Fprintf(w, "    held: %s\n", line(s.Held))
	}
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return line(s)
}

// summary counts steps, e.g. "2 to create, 1 to change, 1 to remove, 1 held".
func summary(steps []client.Step) string {
	n := map[string]int{}
	for _, s := range steps {
		n[mark(s)]++
	}
	var parts []string
	for _, p := range []struct{ mark, text string }{{"+", "to create"}, {"~", "to change"}, {"-", "to remove"}, {"!", "held"}} {
		if n[p.mark] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[p.mark], p.text))
		}
	}
	return strings.Join(parts, ", ")
}

// doing describes a step in progress, e.g. "being made".
func doing(s client.Step) string {
	verb := map[string]string{
		"create": "being made", "recreate": "being made again", "start": "starting", "stop": "stopping",
		"restart": "restarting", "update": "being changed", "delete": "being removed", "adopt": "being taken over",
	}[s.Action]
	switch {
	case verb == "":
		return strings.TrimSpace(s.Action + " " + s.Detail)
	case s.Detail == "":
		return verb
	}
	return verb + ": " + s.Detail
}
