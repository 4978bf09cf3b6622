package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// allowWords are the impacts that the user must allow.
var allowWords = []string{"restart", "recreate", "destroy"}

type applyFlags struct {
	files   []string
	allow   []string
	wait    bool
	timeout time.Duration
	dryRun  bool
	confirm time.Duration
	replace bool
}

func (a *app) applyCommand() *cobra.Command {
	var f applyFlags
	cmd := prints(&cobra.Command{
		Use:   "apply -f FILE...",
		Short: "Make declarations the wanted state of this host",
		Long: "Apply declarations: print the changes, send them to the agent and, with --wait, follow\n" +
			"until every machine is ready. The name of a declaration is its file's stem or its `name:`,\n" +
			"which standard input needs; applying it again replaces it. All declarations form a whole:\n" +
			"they may refer to each other's objects, and an object may move from one to another.\n" +
			"Steps that would restart or recreate a machine, or destroy an object with data that no\n" +
			"declaration names any more, are held unless --allow names them.\n" +
			"A change of the host's own network is reverted automatically when the host cannot be reached\n" +
			"after it; with --confirm also unless it is confirmed.",
		Example: "  hostler apply -f web.yaml --wait\n  hostler apply -f conf/ --allow restart\n  cat web.yaml | hostler apply -f - --dry-run",
		Args:    takesFiles,
		RunE: func(cmd *cobra.Command, more []string) error {
			f.files = append(f.files, more...)
			return a.apply(cmd.Context(), f)
		},
	}, outTable, outJSON, outYAML)
	addFiles(cmd, &f.files, fileHelp)
	addAllow(cmd, &f.allow, "allow steps with")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "follow until every machine is ready")
	addTimeout(cmd, &f.timeout, "--wait waits")
	cmd.Flags().DurationVar(&f.confirm, "confirm", 0, "revert a change of the host's own network unless 'hostler confirm' comes within this `TIME`")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "replace a declaration of the same name that was applied from another path")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the plan only; like plan, but exits 0")
	return cmd
}

func (a *app) planCommand() *cobra.Command {
	var f applyFlags
	cmd := prints(&cobra.Command{
		Use:   "plan -f FILE...",
		Short: "Show the changes that applying declarations would make",
		Long: "Show each step that applying the declarations would take, with its impact: none, live,\n" +
			"restart, recreate or destroy. Exit code 0 says that nothing would change, 2 that\n" +
			"something would.",
		Example: "  hostler plan -f web.yaml\n  hostler plan -f conf/ -o json",
		Args:    takesFiles,
		RunE: func(cmd *cobra.Command, more []string) error {
			f.files = append(f.files, more...)
			return a.plan(cmd.Context(), f)
		},
	}, outTable, outJSON, outYAML)
	addFiles(cmd, &f.files, fileHelp)
	addAllow(cmd, &f.allow, "plan as if steps were allowed that have")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "plan as with apply --replace")
	return cmd
}

// request reads the documents and checks the words of --allow.
func (a *app) request(ctx context.Context, f applyFlags) (client.ApplyRequest, places, error) {
	for _, w := range f.allow {
		if !slices.Contains(allowWords, w) {
			return client.ApplyRequest{}, nil, usage("unknown --allow %q%s", w, didYouMean(w, allowWords)).
				hint("it takes " + strings.Join(allowWords, ", ") + ", or several with commas")
		}
	}
	docs, places, err := readDocuments(ctx, f.files, a.env.Stdin)
	if err == nil {
		err = checkTogether(docs)
	}
	req := client.ApplyRequest{Documents: docs, Allow: f.allow, Replace: f.replace}
	if err == nil {
		req.Folders, err = foldersOf(f.files)
	}
	if f.confirm != 0 {
		req.Confirm = f.confirm.String()
	}
	return req, places, err
}

func (a *app) plan(ctx context.Context, f applyFlags) error {
	req, files, err := a.request(ctx, f)
	if err != nil {
		return err
	}
	req.DryRun = true
	p, err := a.agent().Plan(ctx, req)
	if err != nil {
		return a.unanswered(ctx, req, files, err)
	}
	if err := a.showPlan(p, true); err != nil {
		return err
	}
	if len(changes(p)) > 0 {
		return silent(exitChanges)
	}
	return nil
}

// showPlan prints a plan in the chosen format.
func (a *app) showPlan(p client.Plan, head bool) error {
	if a.output != outTable {
		p.Steps = pick(p.Steps, every(len(p.Steps)))
		p.Machines = pick(p.Machines, every(len(p.Machines)))
		p.Removed = pick(p.Removed, every(len(p.Removed)))
		return a.document(p)
	}
	for _, name := range p.Gone {
		a.note("the file of declaration %s was removed from its folder: it is no longer in force", line(name))
	}
	printPlan(a.env.Stdout, p, a.colours(), head)
	for _, w := range p.Warnings {
		fmt.Fprintln(a.env.Stdout, a.colours().yellow("warning: "+line(w)))
	}
	if len(changes(p)) == 0 {
		a.note("no changes")
	}
	return nil
}

func (a *app) apply(ctx context.Context, f applyFlags) error {
	if f.timeout <= 0 {
		return usage("--timeout must be positive, got %s", f.timeout)
	}
	req, files, err := a.request(ctx, f)
	if err != nil {
		return err
	}
	agent := a.agent()
	do := agent.Apply
	if f.dryRun {
		req.DryRun = true
		do = agent.Plan
	}
	p, err := do(ctx, req)
	if err != nil {
		return a.unanswered(ctx, req, files, err)
	}
	if !a.quiet || a.output != outTable {
		if err := a.showPlan(p, false); err != nil {
			return err
		}
	}
	if f.dryRun {
		return nil
	}
	return a.follow(ctx, agent, req, p, f)
}

// follow waits if --wait is set. It returns a failure if steps are held.
func (a *app) follow(ctx context.Context, agent agent, req client.ApplyRequest, p client.Plan, f applyFlags) error {
	held := heldSteps(p)
	switch {
	case f.wait:
		if err := a.waitApplied(ctx, agent, req, p, f.timeout); err != nil {
			return err
		}
	case a.output == outTable && len(changes(p)) > len(held):
		a.note("accepted; `hostler get machines -w` follows it, `hostler apply --wait` waits for it")
	}
	if len(held) == 0 {
		return nil
	}
	return heldFailure(held)
}

func heldSteps(p client.Plan) []client.Step {
	var out []client.Step
	for _, s := range p.Steps {
		if s.Held != "" {
			out = append(out, s)
		}
	}
	return out
}

// heldFailure names the held steps and the --allow that releases them.
func heldFailure(held []client.Step) error {
	var objects, words []string
	for _, s := range held {
		if !slices.Contains(objects, s.Object) {
			objects = append(objects, s.Object)
		}
		if s.Allow != "" && !slices.Contains(words, string(s.Allow)) {
			words = append(words, string(s.Allow))
		}
	}
	slices.Sort(words)
	f := fail(exitError, "%s held back: %s", count(len(held), "step"), strings.Join(objects, ", "))
	if len(words) > 0 {
		f.mend = "apply again with --allow " + strings.Join(words, ",")
	}
	return f
}

// waitApplied follows the declared objects whose steps are not held until they
// are ready, and the removed objects until they are gone.
func (a *app) waitApplied(ctx context.Context, agent agent, req client.ApplyRequest, p client.Plan, timeout time.Duration) error {
	g := goals{ready: referencesOf(p.Objects), gone: referencesOf(p.Removed), remade: referencesOf(p.Awaited)}
	for _, m := range p.Machines {
		g.ready = append(g.ready, machineNamed(m))
	}
	held := heldSteps(p)
	for _, s := range held {
		// Only a held change of a NIC or disk keeps what is removed.
		device := slices.ContainsFunc(s.Changes, func(c client.Change) bool {
			return strings.HasPrefix(c.Field, "nic ") || strings.HasPrefix(c.Field, "disk ")
		})
		if name, is := strings.CutPrefix(s.Object, spec.KindMachine+"/"); is && device {
			g.held = append(g.held, name)
		}
	}
	g.ready = slices.DeleteFunc(g.ready, func(r reference) bool {
		return slices.ContainsFunc(held, func(s client.Step) bool { return s.Object == r.String() })
	})
	if len(changes(p)) > 0 {
		g.check = func(ctx context.Context) (map[string]string, error) { return stillToDo(ctx, agent, req) }
	}
	started := a.env.Now()
	if err := a.waitFor(ctx, agent, g, timeout, exitError); err != nil {
		return err
	}
	machines := 0
	for _, r := range g.ready {
		if r.kind == spec.KindMachine {
			machines++
		}
	}
	var ready []string
	if machines > 0 {
		ready = append(ready, count(machines, "machine"))
	}
	if n := len(g.ready) - machines; n > 0 {
		ready = append(ready, count(n, "other object"))
	}
	if len(ready) > 0 && a.output == outTable {
		a.note("%s ready in %s", strings.Join(ready, " and "), short(a.env.Now().Sub(started)))
	}
	return nil
}

// stillToDo plans the same documents again. It returns the steps that are
// neither done nor held, keyed by machine.
func stillToDo(ctx context.Context, agent agent, req client.ApplyRequest) (map[string]string, error) {
	req.DryRun = true
	p, err := agent.Plan(ctx, req)
	if err != nil {
		return nil, err
	}
	todo := map[string]string{}
	for _, s := range changes(p) {
		name, ok := strings.CutPrefix(s.Object, spec.KindMachine+"/")
		if ok && s.Held == "" {
			todo[name] = doing(s)
		}
	}
	return todo, nil
}
