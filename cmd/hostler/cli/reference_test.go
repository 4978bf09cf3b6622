package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hostler/agent/spec"
	"hostler/internal/version"
)

const referenceFile = "../../../docs/commands.md"

// docs/commands.md equals the generated text; -update writes it.
func TestReferenceIsCurrent(t *testing.T) {
	got := run(t, &standIn{}, &fakeTerminal{}, nil, "", "internal", "commands")
	if got.code != exitOK {
		t.Fatal(got.stderr)
	}
	if *update {
		if err := os.WriteFile(referenceFile, []byte(got.stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != got.stdout {
		t.Error("docs/commands.md is not what the commands say: run go test ./cmd/hostler/cli -update")
	}
}

// Every visible command has a manual page; hidden commands have none.
func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	if got := run(t, &standIn{}, &fakeTerminal{}, nil, "", "internal", "man", dir); got.code != exitOK {
		t.Fatal(got.stderr)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(pages) < 25 {
		t.Errorf("%d pages, %v", len(pages), err)
	}
	for name, sections := range map[string]string{
		"hostler.1":             "NAME SYNOPSIS OPTIONS EXAMPLES FILES ENVIRONMENT EXIT_STATUS SEE_ALSO",
		"hostler-apply.1":       "NAME SYNOPSIS OPTIONS EXAMPLES FILES ENVIRONMENT EXIT_STATUS SEE_ALSO",
		"hostler-image-build.1": "NAME SYNOPSIS OPTIONS EXAMPLES FILES ENVIRONMENT EXIT_STATUS SEE_ALSO",
		"hostler-config.5":      "NAME DESCRIPTION DOCUMENT NETWORKS VOLUMES FILESYSTEMS MACHINES EXAMPLES FILES SEE_ALSO",
		"hostler.yaml.5":        "NAME SYNOPSIS DESCRIPTION KEYS EXAMPLES FILES SEE_ALSO",
	} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		for section := range strings.FieldsSeq(strings.ReplaceAll(sections, "_", "+")) {
			if !strings.Contains(string(page), "\n.SH "+strings.ReplaceAll(section, "+", " ")+"\n") {
				t.Errorf("%s has no section %s", name, section)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "hostler-internal.1")); err == nil {
		t.Error("a hidden command has a manual page")
	}
}

// Completion scripts exist for each shell, and names come from the agent.
func TestCompletion(t *testing.T) {
	for _, shell := range shells {
		if got := run(t, nil, &fakeTerminal{}, nil, "", "completion", shell); got.code != exitOK || !strings.Contains(got.stdout, "hostler") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	for line, want := range map[string]string{
		"get m -o ":           "wide",
		"plan -o ":            "yaml",
		"apply --allow ":      "recreate",
		"wait --for ":         "gone",
		"image build --type ": "kvm",
		"adopt ":              "lxd/",
		"show type/":          "type/kvm",
		"retry ty":            "type/",
		"show image/":         "image/debian/12",
		"get a":               "attachments",
		"exec ":               "web",
		"show machine/":       "machine/web",
		"show ":               "machine/",
		"get ":                "machines",
		"get machines ":       "spare",
		"image delete ":       "debian/12",
		"harvest ":            "destroyed",
		"completion ":         "bash",
		"delete declaration/": "declaration/site",
	} {
		words := strings.Split(line, " ")
		got := run(t, smallHost(), &fakeTerminal{}, nil, "", append([]string{"__complete"}, words...)...)
		if !strings.Contains(got.stdout, want+"\n") {
			t.Errorf("%q completes to %q, without %q", line, got.stdout, want)
		}
	}
	twice := smallHost()
	twice.images = append(twice.images, twice.images[0])
	if got := run(t, twice, &fakeTerminal{}, nil, "", "__complete", "image", "delete", ""); strings.Count(got.stdout, "debian/12\n") != 1 {
		t.Errorf("an image that is kept twice is named twice: %q", got.stdout)
	}
	// Without an agent there are no completions and no error.
	t.Chdir(t.TempDir())
	got := run(t, nil, &fakeTerminal{}, nil, "", "--socket", "none.sock", "__complete", "exec", "")
	if strings.Contains(got.stdout, "web") || strings.Contains(got.stdout, "cannot") {
		t.Errorf("got %+v", got)
	}
}

// Every command refuses formats of -o that it does not have, and names its
// formats.
func TestOutputIsRefused(t *testing.T) {
	a := &app{}
	for _, c := range a.root().Commands() {
		formats := strings.Fields(c.Annotations[outputs])
		for _, f := range append([]string{"xml"}, allOutputs...) {
			a.output = f
			err := a.checkOutput(c)
			known := false
			for _, k := range formats {
				known = known || k == f
			}
			if known == (err != nil) {
				t.Errorf("%s -o %s: %v", c.Name(), f, err)
			}
		}
	}
}

// The printed schema is JSON.
func TestSchemaIsPrinted(t *testing.T) {
	got := run(t, &standIn{}, &fakeTerminal{}, nil, "", "schema")
	if got.code != exitOK || !json.Valid([]byte(got.stdout)) {
		t.Errorf("exit %d: %.60s", got.code, got.stdout)
	}
}

// Both spellings print the command's own version, without an agent.
func TestVersionFlag(t *testing.T) {
	for _, word := range []string{"--version", "-v"} {
		if got := run(t, nil, &fakeTerminal{}, nil, "", word); got.code != exitOK || got.stdout != "hostler "+version.Version+"\n" {
			t.Errorf("%s: %+v", word, got)
		}
	}
}

// The help names the value of each flag; no name is empty or a Go type.
func TestFlagsNameTheirValues(t *testing.T) {
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			if name != strings.ToUpper(name) || name == "" && f.Value.Type() != "bool" {
				t.Errorf("%s --%s names its value %q", c.CommandPath(), f.Name, name)
			}
		})
		for _, s := range c.Commands() {
			look(s)
		}
	}
	look((&app{}).root())
}

// The examples in the manual pages are valid.
func TestExamplesOfManualPages(t *testing.T) {
	if _, err := spec.Parse("web", []byte(exampleDeclaration)); err != nil {
		t.Error(err)
	}
	if _, warnings, err := spec.ParseConfig("hostler.yaml", []byte(strings.Replace(exampleConfiguration, "AAAAI...", "AAAAIJ2lUx0Kr3sIu8sDxyCqCF9ZQyVC1SW2gK1YxkX3tVbM", 1))); err != nil || len(warnings) > 0 {
		t.Error(warnings, err)
	}
}
