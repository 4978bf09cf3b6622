package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The manual page names every flag and command, and the defaults.
func TestManualPage(t *testing.T) {
	page, err := os.ReadFile("../../debian/hostlerd.8")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), `\-`, "-")
	_, options, _ := strings.Cut(text, ".SH OPTIONS")
	options, _, _ = strings.Cut(options, ".SH ")
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		if !strings.Contains(text, ".B "+c.CommandPath()+"\n") {
			t.Errorf("the command %q is not there", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, said, _ := strings.Cut(options, "--"+f.Name)
			said, _, _ = strings.Cut(said, ".TP")
			if said == "" || f.DefValue != "false" && !strings.Contains(said, f.DefValue) {
				t.Errorf("--%s with its default %s is not there", f.Name, f.DefValue)
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(command())
}

func TestPathsAreAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	p, err := pathsOf("hostler.yaml", "state", "../run")
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		p.Config:   filepath.Join(dir, "hostler.yaml"),
		p.StateDir: filepath.Join(dir, "state"),
		p.RunDir:   filepath.Join(filepath.Dir(dir), "run"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A wrong name of a worker, and a missing one, have one message each.
func TestWorkerNames(t *testing.T) {
	for range 20 { // the known names have the same order each time
		for args, want := range map[string]string{
			"worker":        "hostlerd worker takes the NAME of one worker, like provisioner-lxd, and got 0",
			"worker nobody": `cannot run worker "nobody": those that run by themselves are provisioner-incus, provisioner-kvm, provisioner-lxc, provisioner-lxd`,
		} {
			c := command()
			c.SetArgs(strings.Fields(args))
			if err := c.ExecuteContext(t.Context()); err == nil || err.Error() != want {
				t.Fatalf("%s: got %v, want %s", args, err, want)
			}
		}
	}
}
