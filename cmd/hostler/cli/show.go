package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/fault"
)

// shownEvents is the number of an object's last events that show prints.
const shownEvents = 15

func (a *app) showCommand() *cobra.Command {
	return prints(&cobra.Command{
		Use:     "show KIND/NAME",
		Short:   "Show all details of an object",
		Long:    "Show an object: its declaration, status, attempts, next retry and last events.",
		Example: "  hostler show machine/web\n  hostler show type/lxd\n  hostler show image/debian/12\n  hostler show declaration/web -o yaml",
		Args:    takes(1, 1, "one KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseShown(args[0])
			switch {
			case err != nil:
				return err
			case r.kind == kindImage:
				return a.showImage(cmd.Context(), r.name)
			}
			return a.show(cmd.Context(), r)
		},
		ValidArgsFunction: a.completeShown,
	}, outTable, outJSON, outYAML)
}

func (a *app) show(ctx context.Context, r reference) error {
	agent := a.agent()
	o, err := agent.Show(ctx, r.kind, r.name)
	if r.kind == spec.KindContainerType && fault.Is(err, fault.NotFound) {
		o, err = neverNeeded(r.name), nil
	}
	if err != nil {
		return near(ctx, agent, r, err)
	}
	if a.output != outTable {
		return a.document(o)
	}
	s := sheet{w: a.env.Stdout, now: a.env.Now(), colours: a.colours()}
	s.object(o)
	return nil
}

// sheet prints the sections of show.
type sheet struct {
	w       io.Writer
	now     time.Time
	colours colours
}

func (s sheet) field(name, value string) {
	if value != "" {
		fmt.Fprintf(s.w, "%s %s\n", pad(name+":", 13), line(value))
	}
}

// paragraph prints a field whose value has several lines.
func (s sheet) paragraph(name, value string) {
	for i, text := range strings.Split(strings.TrimSpace(value), "\n") {
		if i == 0 {
			s.field(name, text)
			continue
		}
		fmt.Fprintf(s.w, "%s %s\n", pad("", 13), line(text))
	}
}

func (s sheet) title(name string) { fmt.Fprintf(s.w, "\n%s\n", s.colours.bold(name+":")) }

func (s sheet) object(o client.Object) {
	s.field("Name", o.Name)
	s.field("Kind", o.Kind)
	s.field("UID", o.UID)
	life := o.Life
	s.field("Life", life)
	s.field("Created", s.moment(o.Created))
	s.field("Changed", s.moment(o.Updated))
	switch o.Kind {
	case spec.KindMachine:
		s.machine(o)
	case spec.KindDeclaration:
		s.declaration(o)
	case spec.KindContainerType:
		s.containerType(o)
	default:
		s.field("Generation", fmt.Sprint(o.Generation))
		s.yamlSection("Spec", o.Spec)
		s.yamlSection("Status", o.Status)
	}
	s.events(o.Events)
}

func (s sheet) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339) + " (" + ago(s.now, t) + ")"
}

func (s sheet) declaration(o client.Object) {
	var r spec.DeclarationRecord
	if json.Unmarshal(o.Spec, &r) != nil {
		s.yamlSection("Spec", o.Spec)
		return
	}
	s.field("Source", r.Source)
	s.field("Generation", fmt.Sprint(o.Generation))
	var document struct {
		Document json.RawMessage `json:"document"`
	}
	if json.Unmarshal(o.Spec, &document) == nil {
		s.yamlSection("Document", document.Document)
	}
}

func (s sheet) machine(o client.Object) {
	var r spec.MachineRecord
	var st spec.MachineStatus
	if json.Unmarshal(o.Spec, &r) != nil || (len(o.Status) > 0 && json.Unmarshal(o.Status, &st) != nil) {
		s.yamlSection("Spec", o.Spec)
		s.yamlSection("Status", o.Status)
		return
	}
	s.field("Declaration", r.Declaration)
	generation := fmt.Sprint(o.Generation)
	if st.ObservedGeneration != o.Generation {
		generation += fmt.Sprintf(" (the status is of %d: the change is not carried out yet)", st.ObservedGeneration)
	}
	s.field("Generation", generation)
	switch {
	case r.AllowsRecreate(&st):
		s.field("Allowed", spec.AllowRecreate)
	case r.AllowsRestart(&st):
		s.field("Allowed", spec.AllowRestart)
	}
	if r.PowerOverride != nil {
		s.field("Power", map[bool]string{true: "started", false: "stopped"}[*r.PowerOverride]+" by hand, until the declaration is applied again")
	}

	s.title("Status")
	state := cmp.Or(string(st.State), string(spec.MachinePending))
	fmt.Fprintf(s.w, "  %s %s\n", pad("State:", 13), s.colours.word(line(state)))
	s.sub("Message", st.Message)
	if st.Percent != nil {
		s.sub("Progress", fmt.Sprintf("%d %%", *st.Percent))
	}
	if st.Instance != nil {
		s.sub("Instance", fmt.Sprintf("%s (%s), made %s", st.Instance.Name, r.Machine.Type, ago(s.now, st.Instance.Created)))
		s.sub("Image ID", st.Instance.ImageID)
	}
	s.sub("Addresses", strings.Join(st.Addresses, " "))
	s.sub("Hardware", hardware(st.Hardware))
	if st.StartedAt != nil {
		s.sub("Started", ago(s.now, *st.StartedAt))
	}
	if st.Deaths > 0 {
		s.sub("Deaths", fmt.Sprintf("%d in a row soon after a start", st.Deaths))
	}
	s.attempts(st.Attempts, o)
	s.conditions(st.Conditions)
	var machine struct {
		Machine json.RawMessage `json:"machine"`
	}
	if json.Unmarshal(o.Spec, &machine) == nil {
		s.yamlSection("Spec", machine.Machine)
	}
}

func (s sheet) attempts(at spec.Attempts, o client.Object) {
	if at.Count == 0 && at.NextRetry == nil && at.ErrorKind == "" {
		return
	}
	s.sub("Attempts", fmt.Sprint(at.Count))
	s.sub("Error kind", at.ErrorKind)
	if at.NextRetry != nil {
		s.sub("Next retry", until(s.now, at.NextRetry))
	} else if at.ErrorKind != "" {
		s.sub("Next retry", "none; `hostler retry "+o.Kind+"/"+o.Name+"` tries again")
	}
}

func (s sheet) sub(name, value string) {
	if value != "" {
		fmt.Fprintf(s.w, "  %s %s\n", pad(name+":", 13), line(value))
	}
}

func hardware(h *spec.Hardware) string {
	if h == nil {
		return ""
	}
	var parts []string
	if h.CPUs > 0 {
		parts = append(parts, count(h.CPUs, "cpu"))
	}
	if h.Memory > 0 {
		parts = append(parts, size(h.Memory)+" memory")
	}
	if h.RootDisk > 0 {
		parts = append(parts, size(h.RootDisk)+" root disk")
	}
	if h.RootUnlimited {
		parts = append(parts, "root disk without a limit")
	}
	for _, w := range []string{h.Arch, h.VirtType} {
		if w != "" {
			parts = append(parts, w)
		}
	}
	return strings.Join(parts, ", ")
}

func (s sheet) conditions(conditions []spec.Condition) {
	if len(conditions) == 0 {
		return
	}
	s.title("Conditions")
	t := &table{head: []string{"  TYPE", "HOLDS", "SINCE", "REASON", "MESSAGE"}}
	for _, c := range conditions {
		holds := "no"
		if c.Status {
			holds = "yes"
		}
		t.add("  "+c.Type, holds, ago(s.now, c.Since), c.Reason, c.Message)
	}
	_ = t.write(s.w, 0, nil)
}

// yamlSection prints a part of the object as indented YAML below a title.
func (s sheet) yamlSection(name string, raw json.RawMessage) {
	if len(raw) == 0 || slices.Contains([]string{"null", "{}"}, string(raw)) {
		return
	}
	s.title(name)
	y, err := toYAML(raw)
	if err != nil {
		y = raw
	}
	for l := range strings.Lines(strings.TrimRight(string(y), "\n")) {
		fmt.Fprintf(s.w, "  %s\n", clean(strings.TrimRight(l, "\n"), true))
	}
}

func (s sheet) events(events []client.Event) {
	if len(events) == 0 {
		return
	}
	s.title("Events")
	t := &table{head: []string{"  AGE", "LEVEL", "REASON", "MESSAGE"}}
	all := collapse(events)
	for _, e := range all[max(0, len(all)-shownEvents):] {
		t.add("  "+age(s.now, &e.Time), e.Level, e.Reason, e.text())
	}
	_ = t.write(s.w, 0, s.colours.cell)
}
