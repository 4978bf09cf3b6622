package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"hostler/agent/spec"
	"hostler/internal/version"
)

// writeManual writes the manual pages of the commands, of declarations and of
// the host's configuration into a folder.
func writeManual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the directory: %w", err)
	}
	if err := writeCommandPages(documented(root), dir); err != nil {
		return fmt.Errorf("cannot write the manual pages: %w", err)
	}
	for name, text := range map[string]string{"hostler-config.5": declarationPage(), "hostler.yaml.5": configurationPage()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("cannot write the manual pages: %w", err)
		}
	}
	return nil
}

// writeCommandPages writes the pages of a command and its subcommands.
func writeCommandPages(c *cobra.Command, dir string) error {
	for _, s := range c.Commands() {
		if !s.IsAvailableCommand() || s.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writeCommandPages(s, dir); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err := doc.GenMan(c, &doc.GenManHeader{Section: "1", Source: "hostler " + version.Version, Manual: "hostler manual"}, &b); err != nil {
		return err
	}
	text := strings.Replace(b.String(), "\n.SH EXAMPLE\n", "\n.SH EXAMPLES\n", 1)
	head, also, found := strings.Cut(text, "\n.SH SEE ALSO\n")
	if found {
		also = strings.TrimSpace(also) + ",\n"
	}
	text = head + "\n" + commandSections(c) + ".SH SEE ALSO\n" + also + ".BR hostler\\-config (5),\n.BR hostler.yaml (5),\n.BR hostlerd (8)\n"
	name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

// commandExits are the exit codes that only some commands have.
var commandExits = map[string][][2]string{
	"plan":     {{"0", "Nothing would change."}, {"2", "Something would change."}},
	"validate": {{"0", "All are valid."}, {"1", "At least one is invalid."}},
	"get":      {{"3", "A named object does not exist."}},
	"wait":     {{"1", "An object failed for good or, with --all, a file is not in force."}, {"124", "The time was up."}},
	"status":   {{"1", "With --wait: an object failed for good, or a file is not in force."}, {"2", "With --wait: all is ready, but degraded."}, {"124", "The time of --wait was up."}},
	"apply":    {{"1", "Something failed, is held back, or the time of --wait was up."}},
	"doctor":   {{"1", "There are errors, with --strict also warnings."}},
	"exec":     {{"any", "The exit code of the command in the machine."}},
}

// commandSections returns the sections on exit status, environment and files.
func commandSections(c *cobra.Command) string {
	var b strings.Builder
	b.WriteString(".SH EXIT STATUS\n")
	exits := commandExits[commandName(c)]
	shown := map[string]bool{}
	for _, e := range exits {
		shown[e[0]] = true
		tagged(&b, e[0], e[1])
	}
	for _, e := range [][2]string{{"0", "Done."}, {"1", "An error; standard error says which."}, {"130", "Interrupted. The agent continues."}} {
		if !shown[e[0]] {
			tagged(&b, e[0], e[1])
		}
	}
	b.WriteString(".SH ENVIRONMENT\n")
	tagged(&b, "HOSTLER_SOCKET", "The agent's socket, where --socket does not name it.")
	tagged(&b, "NO_COLOR", "When set, no colours are printed.")
	b.WriteString(".SH FILES\n")
	tagged(&b, defaultSocket, "The agent's socket.")
	tagged(&b, "/etc/hostler/conf.d/*.yaml", "Declarations that the agent reads by itself.")
	tagged(&b, "/usr/share/doc/hostler", "The manual, and examples of declarations.")
	return b.String()
}

// tagged writes a paragraph with a bold head and indented text.
func tagged(b *strings.Builder, head, text string) {
	fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", troff(head), troff(text))
}

// troff escapes text for a line of a manual page.
func troff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// page begins a manual page of section 5.
func page(name, title string) *strings.Builder {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 5 \"\" \"hostler %s\" \"hostler manual\"\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(troff(name)), troff(version.Version), troff(name), troff(title))
	return &b
}

// paragraphs writes each text as a paragraph.
func paragraphs(b *strings.Builder, texts ...string) {
	for i, text := range texts {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(troff(text) + "\n")
	}
}

// literal writes an example verbatim.
func literal(b *strings.Builder, text string) {
	b.WriteString(".PP\n.nf\n.RS\n")
	for l := range strings.Lines(text) {
		b.WriteString(troff(strings.TrimRight(l, "\n")) + "\n")
	}
	b.WriteString(".RE\n.fi\n")
}

// keys writes an entry for each field.
func keys(b *strings.Builder, fields []spec.Field) {
	for _, f := range fields {
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR (%s", troff(f.Path), troff(f.Value))
		if f.Required {
			b.WriteString("; required")
		}
		if f.Default != "" {
			fmt.Fprintf(b, "; default: %s", troff(f.Default))
		}
		b.WriteString(")\n" + troff(f.Description) + "\n")
	}
}

const exampleDeclaration = `#hostler-config
version: 1
networks:
  lan: {bridge: br-lan, addresses: [10.20.0.1/24], nat: true}
volumes:
  data: {provider: loop, size: 1GiB}
filesystems:
  www: {volume: data}
machines:
  web:
    type: lxd
    image: debian/12
    cpus: 1
    memory: 512MiB
    root-disk: 4GiB
    networks:
      eth0: {network: lan, address: 10.20.0.10/24}
    storage:
      - {filesystem: www, path: /srv/www}
    cloud-init:
      user-data: |
        #cloud-config
        packages: [nginx]
    publish: [{protocol: tcp, host-port: 8080, port: 80}]
`

// declarationPage returns the manual page hostler-config(5).
func declarationPage() string {
	b := page("hostler-config", "declarations of a host's objects")
	b.WriteString(".SH DESCRIPTION\n")
	paragraphs(b,
		"A declaration is a YAML document (or the same as JSON) that says which networks, volumes, filesystems and machines a host has. "+
			"It is handed to the agent with `hostler apply -f FILE`, or put into /etc/hostler/conf.d, where the agent reads it by itself.",
		"Unknown keys, repeated keys, anchors, aliases, merge keys and tags are errors; errors name the file, the line and the column. "+
			"A document has at most 256 KiB. `hostler validate -f FILE` checks one without an agent, `hostler schema` prints the JSON Schema for editors.",
		"Names are a lower-case letter, then up to 62 of a-z, 0-9 and -. Sizes take B, KiB, MiB, GiB and TiB, like 512MiB; durations are like 90s or 5m. "+
			"Addresses have a prefix length, like 10.20.0.10/24.",
		"In the keys below NAME is a name of your choice, [] is each entry of a list.")
	sections := map[string][]spec.Field{}
	order := []string{"document"}
	for _, f := range spec.DeclarationFields() {
		section := "document"
		if top, _, below := strings.Cut(f.Path, "."); below {
			section = top
		}
		if len(sections[section]) == 0 && section != "document" {
			order = append(order, section)
		}
		sections[section] = append(sections[section], f)
	}
	for _, section := range order {
		b.WriteString(".SH " + strings.ToUpper(section) + "\n")
		keys(b, sections[section])
	}
	b.WriteString(".SH EXAMPLES\n")
	literal(b, exampleDeclaration)
	b.WriteString(".SH FILES\n")
	tagged(b, "/etc/hostler/conf.d/*.yaml", "Declarations that the agent reads by itself.")
	tagged(b, "/usr/share/doc/hostler/examples", "More examples; full.yaml shows every key.")
	b.WriteString(".SH SEE ALSO\n.BR hostler (1),\n.BR hostler\\-apply (1),\n.BR hostler.yaml (5),\n.BR hostlerd (8)\n")
	return b.String()
}

const exampleConfiguration = `namespace: hostler
concurrency: 2
types:
  lxd: {pool: fast}
images: {sources: [local, build], refresh: 168h}
authorized-keys:
  - ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI... ops@example.org
`

// configurationPage returns the manual page hostler.yaml(5).
func configurationPage() string {
	b := page("hostler.yaml", "the host's configuration of hostlerd")
	b.WriteString(".SH SYNOPSIS\n.I /etc/hostler/hostler.yaml\n.SH DESCRIPTION\n")
	paragraphs(b,
		"The YAML file has the settings of the host itself. hostlerd reads it again when it changes; an invalid file has no effect, "+
			"and `hostler status` says where it is wrong. Without the file a new agent has the defaults, and others keep their last configuration. Unknown keys are warnings.",
		"For the declarations see hostler-config(5).")
	b.WriteString(".SH KEYS\n")
	keys(b, spec.ConfigFields())
	b.WriteString(".SH EXAMPLES\n")
	literal(b, exampleConfiguration)
	b.WriteString(".SH FILES\n")
	tagged(b, "/etc/hostler/hostler.yaml", "This file; hostlerd --config names another.")
	b.WriteString(".SH SEE ALSO\n.BR hostler (1),\n.BR hostler\\-config (5),\n.BR hostlerd (8)\n")
	return b.String()
}
