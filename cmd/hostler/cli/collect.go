package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/internal/version"
)

// collectedEvents and collectedObjects bound the archive.
const (
	collectedEvents  = 10_000
	collectedObjects = 500
)

func (a *app) collectCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "collect-logs",
		Short: "Write an archive for a bug report",
		Long: "Write an archive with the journal of hostler's units, the status, doctor's findings, the plan,\n" +
			"all objects, the declarations and versions, for a bug report. Passwords, tokens and user-data\n" +
			"are hidden; names, addresses and public keys are not. Parts that cannot be read are listed in\n" +
			"the archive's file collected.txt. Run it as root: others have no journal.",
		Example: "  sudo hostler collect-logs\n  sudo hostler collect-logs --to /tmp/web1.tar.gz\n  sudo hostler collect-logs --to - | tar -tz",
		Args:    takes(0, 0, ""),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.collectLogs(cmd.Context(), to) },
	}
	cmd.Flags().StringVar(&to, "to", "", "write to this `FILE`, which must not exist; - is standard output (default hostler-logs-TIME.tar.gz)")
	return cmd
}

// collectLogs writes the archive.
func (a *app) collectLogs(ctx context.Context, to string) error {
	stem := "hostler-logs-" + a.env.Now().UTC().Format("20060102-150405")
	if to == "-" && a.env.Term.Output() {
		return usage("an archive is not written to a terminal").hint("redirect it, or name a file: hostler collect-logs --to FILE")
	}
	c := &collection{app: a, agent: a.agent()}
	c.collect(ctx)
	if ctx.Err() != nil {
		return fail(exitInterrupted, "interrupted; no archive was written")
	}
	archive, err := c.archive(stem)
	if err != nil {
		return fmt.Errorf("cannot make the archive: %w", err)
	}
	for _, m := range c.missing {
		a.remark("not in the archive: " + m)
	}
	if to == "-" {
		_, err := a.env.Stdout.Write(archive)
		return err
	}
	if to == "" {
		to = stem + ".tar.gz"
	}
	// Only the caller may read it, since messages may hold secrets of a form that
	// hostler does not know.
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the file
	if err != nil {
		return fileError(to, err)
	}
	if _, err := f.Write(archive); err != nil {
		return errors.Join(fileError(to, err), f.Close())
	}
	if err := f.Close(); err != nil {
		return fileError(to, err)
	}
	a.note("wrote %s (%s); passwords, tokens and user-data are hidden", to, size(int64(len(archive))))
	return nil
}

// collection holds the files of an archive.
type collection struct {
	app     *app
	agent   agent
	hide    concealer
	files   []collected
	missing []string
}

type collected struct {
	name string
	text string
}

// collect reads all parts. The declarations and machines come first, since their
// user-data holds the secrets to look for in the other parts.
func (c *collection) collect(ctx context.Context) {
	documents, declared := c.declarations(ctx)
	c.machines(ctx, declared)
	c.configuration()
	part(c, "version.json", func() (any, error) { return c.versions(ctx) })
	part(c, "status.json", func() (client.Status, error) { return c.agent.Status(ctx) })
	part(c, "doctor.json", func() ([]client.Check, error) {
		checks, err := c.agent.Doctor(ctx)
		if errors.Is(err, client.ErrNotRunning) {
			return withoutAgent(c.app.socket), nil
		}
		return checks, err
	})
	part(c, "events.json", func() ([]client.Event, error) { return lastEvents(ctx, c.agent, "", collectedEvents) })
	part(c, "images.json", func() ([]client.Image, error) {
		rows, _, err := c.agent.Images(ctx)
		return rows, err
	})
	for _, kind := range []string{spec.KindNetwork, spec.KindVolume, spec.KindFilesystem, kindAttachment, kindBlockDevice} {
		part(c, plural(kind)+".json", func() (json.RawMessage, error) { return c.agent.Get(ctx, plural(kind)) })
	}
	if len(documents) > 0 {
		part(c, "plan.json", func() (client.Plan, error) {
			return c.agent.Plan(ctx, client.ApplyRequest{Documents: documents, DryRun: true, Replace: true})
		})
	}
	for _, name := range []string{"result.json", "status.json"} {
		c.file("cloud-init-"+name, "/run/cloud-init/"+name)
	}
	c.file("os-release", "/etc/os-release")
	c.file("kernel", "/proc/version")
	text, err := c.app.env.Run(ctx, "/usr/bin/journalctl", "--no-pager", "--quiet", "-o", "short-iso-precise", "-n", "20000", "-u", "hostlerd.service", "-u", "hostler-*")
	c.add("journal.txt", c.hide.text(text), err)
}

// part adds a document that read returns.
func part[T any](c *collection, name string, read func() (T, error)) {
	v, err := read()
	var text bytes.Buffer
	if err == nil {
		var clean any
		if clean, err = c.hide.document(v); err == nil {
			err = writeJSON(&text, clean)
		}
	}
	c.add(name, text.String(), err)
}

// add adds a file, or the reason why it is missing.
func (c *collection) add(name, text string, err error) {
	if err != nil {
		c.missing = append(c.missing, name+": "+line(c.hide.text(err.Error())))
		return
	}
	c.files = append(c.files, collected{name, text})
}

// file adds a file of the host, if the host has it.
func (c *collection) file(name, path string) {
	content, err := os.ReadFile(filepath.Join("/", c.app.env.Root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	c.add(name, c.hide.text(string(content)), err)
}

// declarations adds all declarations that the agent has. It returns their
// machines, and the declarations with their secrets for a plan. It returns no
// documents if the agent hides secrets from the caller.
func (c *collection) declarations(ctx context.Context) (documents []client.Document, declared map[string]bool) {
	declared = map[string]bool{}
	rows, err := c.agent.Declarations(ctx)
	if err != nil {
		c.learnFiles()
		c.add("declarations", "", err)
		return nil, declared
	}
	var all []client.Object
	whole := true
	for _, row := range rows {
		o, err := c.agent.Show(ctx, spec.KindDeclaration, row.Name)
		var record spec.DeclarationRecord
		if err == nil {
			err = json.Unmarshal(o.Spec, &record)
		}
		if err != nil {
			c.add("declarations/"+row.Name+".json", "", err)
			continue
		}
		for name, m := range record.Document.Machines {
			declared[name] = true
			c.hide.learn(m.CloudInit.UserData)
			whole = whole && m.CloudInit.UserData != concealed
		}
		text, err := json.Marshal(record.Document)
		if err == nil {
			documents = append(documents, client.Document{Name: row.Name, Content: string(text), Path: record.From})
		}
		all = append(all, o)
	}
	for _, o := range all {
		part(c, "declarations/"+o.Name+".json", func() (client.Object, error) { return o, nil })
	}
	if !whole {
		return nil, declared
	}
	return documents, declared
}

// learnFiles learns the secrets of the files in conf.d, if no agent answers: the
// journal may repeat them. All words of a file that cannot be parsed are secrets.
func (c *collection) learnFiles() {
	dir := filepath.Join("/", c.app.env.Root, filepath.Dir(systemConfig), "conf.d")
	entries, _ := os.ReadDir(dir) // configuration() reports the error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		content, err := os.ReadFile(path) //nolint:gosec // a file of the host
		if err != nil {
			c.add(e.Name(), "", err)
			continue
		}
		declared, _, err := spec.ParseAlone(path, content)
		if err != nil {
			c.hide.learn(string(content))
		}
		for _, m := range declared.Machines {
			c.hide.learn(m.CloudInit.UserData)
		}
	}
}

// machines adds the rows and the details of the machines. It learns the secrets
// of the machines that no document declares, e.g. of held machines.
func (c *collection) machines(ctx context.Context, declared map[string]bool) {
	rows, unlisted := c.agent.Machines(ctx)
	type detail struct {
		name   string
		object client.Object
		err    error
	}
	var all []detail
	for i, m := range rows {
		if i >= collectedObjects && declared[m.Name] {
			continue
		}
		d := detail{name: m.Name}
		d.object, d.err = c.agent.Show(ctx, spec.KindMachine, m.Name)
		var record spec.MachineRecord
		if d.err == nil && json.Unmarshal(d.object.Spec, &record) == nil {
			c.hide.learn(record.Machine.CloudInit.UserData)
		}
		if i < collectedObjects {
			all = append(all, d)
		}
	}
	part(c, "machines.json", func() ([]client.Machine, error) { return rows, unlisted })
	for _, d := range all {
		part(c, "machines/"+d.name+".json", func() (client.Object, error) { return d.object, d.err })
	}
}

// configuration adds hostler.yaml, and the mistakes in it and in conf.d.
func (c *collection) configuration() {
	path := filepath.Join("/", c.app.env.Root, systemConfig)
	content, err := readConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var config spec.Config
	if err == nil {
		if config, _, err = spec.ParseConfig(systemConfig, content); err != nil {
			err = errors.New(spec.Summary(err)) // an excerpt might hold a password
		}
	}
	if err != nil {
		c.add("hostler.yaml", "", err)
		return
	}
	part(c, "hostler-yaml.json", func() (spec.Config, error) { return config.WithoutProxyUsers(), nil })
	entries, err := os.ReadDir(filepath.Join(filepath.Dir(path), "conf.d"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	part(c, "conf.d.json", func() ([]string, error) { return names, err })
}

// versions returns the versions of the programs.
func (c *collection) versions(ctx context.Context) (any, error) {
	v, err := c.agent.Version(ctx)
	return map[string]any{"hostler": version.Version, "agent": v}, err
}

// archive returns the files as a compressed tar archive.
func (c *collection) archive(stem string) ([]byte, error) {
	now := c.app.env.Now().UTC().Truncate(time.Second)
	summary := []string{"Collected by hostler " + version.Version + " at " + now.Format(time.RFC3339) + "."}
	for _, m := range c.missing {
		summary = append(summary, "missing "+m)
	}
	files := slices.Insert(c.files, 0, collected{"collected.txt", strings.Join(summary, "\n") + "\n"})
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range files {
		header := &tar.Header{Name: stem + "/" + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: now, Typeflag: tar.TypeReg}
		if err := t.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := io.Copy(t, strings.NewReader(f.text)); err != nil {
			return nil, err
		}
	}
	err := errors.Join(t.Close(), z.Close())
	return b.Bytes(), err
}
