package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes. Programs rely on them.
const (
	exitOK       = 0
	exitError    = 1
	exitChanges  = 2
	exitDegraded = 2
	exitNotFound = 3
	exitTimeout  = 124
	// exitInterrupted is a shell's exit code for a command that SIGINT ended.
	exitInterrupted = 130
)

// failure is an error with its exit code and its remedy, if one is known. A
// failure with an empty text only sets the exit code, because its message was
// printed before.
type failure struct {
	code int
	text string
	mend string
}

func (f *failure) Error() string { return f.text }

func (f *failure) hint(mend string) *failure {
	f.mend = mend
	return f
}

// usage returns the error for a wrong command line.
func usage(format string, args ...any) *failure {
	return fail(exitError, format, args...)
}

// fail returns an error with the given exit code.
func fail(code int, format string, args ...any) *failure {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

// silent returns a failure that only sets the exit code.
func silent(code int) *failure { return &failure{code: code} }

// explain turns any error into a failure. It keeps the error's text, except for
// an interrupt and a timeout.
func explain(ctx context.Context, err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if ctx.Err() != nil {
		return fail(exitInterrupted, "interrupted")
	}
	text := strings.TrimSpace(err.Error())
	if errors.Is(err, context.DeadlineExceeded) {
		text = "the agent did not answer in time"
	}
	f := fail(exitError, "%s", text)
	if refused(err) {
		f.mend = who
	}
	return f
}

// flagError explains pflag's error about a flag.
func flagError(cmd *cobra.Command, err error) error {
	hint := "`" + cmd.CommandPath() + " --help` lists its flags"
	if before := cmd.Flags().Args(); cmd.HasSubCommands() && len(before) > 0 {
		return unknownCommand(cmd, before[0])
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := bad.GetFlag()
		switch f.Value.Type() {
		case "duration":
			return usage("--%s takes a duration like 90s or 5m, got %q", f.Name, bad.GetValue())
		case "int":
			return usage("--%s takes a number, got %q", f.Name, bad.GetValue())
		}
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		near := ""
		if found := closest(unknown.GetSpecifiedName(), known, 1); len(found) > 0 {
			near = ", did you mean --" + found[0] + "?"
		}
		return usage("%s has no flag --%s%s", commandName(cmd), unknown.GetSpecifiedName(), near).hint(hint)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return usage("%s has no flag -%s", commandName(cmd), unknown.GetSpecifiedName()).hint(hint)
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usage("--%s needs a value", bare.GetFlag().Name).hint(hint)
	}
	return usage("%s", strings.TrimSpace(err.Error())).hint(hint)
}

// takes returns a check of the number of arguments. A negative most means no
// maximum. The check's error names the missing argument.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		name := commandName(cmd)
		f := (*failure)(nil)
		switch {
		case len(args) < least:
			f = usage("%s needs %s", name, what)
		case most == 0 && len(args) > 0:
			f = usage("%s takes no argument, got %q", name, args[0])
		case most >= 0 && len(args) > most:
			f = usage("%s takes %s, got %q too", name, what, args[most])
		default:
			return nil
		}
		return f.hint("usage: " + cmd.UseLine())
	}
}

// habits maps the words of other tools to the equivalent command.
var habits = map[string]string{
	"list": "get machines", "ls": "get machines", "ps": "get machines",
	"describe": "show KIND/NAME", "info": "show KIND/NAME", "inspect": "show KIND/NAME",
	"rm": "delete KIND/NAME", "remove": "delete KIND/NAME", "destroy": "delete KIND/NAME",
	"shell": "exec MACHINE -- bash", "ssh": "exec MACHINE -- bash", "attach": "console MACHINE",
	"diff": "plan -f FILE", "check": "validate -f FILE", "lint": "validate -f FILE",
	"create": "apply -f FILE", "launch": "apply -f FILE", "init": "apply -f FILE", "up": "apply -f FILE",
	"pull": "image build REFERENCE", "cloud-init": "user-data -f FILE", "log": "logs MACHINE", "top": "status",
}

// unknownCommand returns the error for a word that names no command below cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	name := strings.TrimPrefix(cmd.CommandPath()+" "+word, "hostler ")
	if habit := habits[word]; habit != "" && !cmd.HasParent() {
		return usage("unknown command %q", name).hint("`hostler " + habit + "` does that")
	}
	return usage("unknown command %q%s", name, didYouMean(word, known)).hint("`" + cmd.CommandPath() + " --help` lists the commands")
}

// commandName returns the command without the program's name, e.g. "image
// build".
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), "hostler ")
}
