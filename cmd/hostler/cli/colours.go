package cli

import "hostler/agent/spec"

// colours paints text if it is true. If it is false, it returns text unchanged.
type colours bool

func (c colours) paint(code, s string) string {
	if !c || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (c colours) red(s string) string    { return c.paint("31", s) }
func (c colours) green(s string) string  { return c.paint("32", s) }
func (c colours) yellow(s string) string { return c.paint("33", s) }
func (c colours) bold(s string) string   { return c.paint("1", s) }

// step paints s, a line of a plan, in the colour of its mark.
func (c colours) step(mark, s string) string {
	switch mark {
	case "+":
		return c.green(s)
	case "-", "!":
		return c.red(s)
	case "~":
		return c.yellow(s)
	default:
		return s
	}
}

// word paints a status word, e.g. "running" green and "error" red.
func (c colours) word(s string) string {
	switch s {
	case string(spec.MachineRunning), "ready", "ok":
		return c.green(s)
	case string(spec.MachineError), "failed", "masked":
		return c.red(s)
	case string(spec.MachineProvisioning), string(spec.MachinePending), string(spec.MachineDying),
		string(spec.MachineUnknown), "warning", "waiting", "initialising", "elsewhere":
		return c.yellow(s)
	default:
		return s
	}
}

// cell paints a table's cell by its column.
func (c colours) cell(column, s string) string {
	switch column {
	case "STATUS", "STATE", "RESULT", "LEVEL":
		return c.word(s)
	default:
		return s
	}
}
