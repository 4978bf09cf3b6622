package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// bootWaitCommand returns the hidden command that cloud-init runs at the end of
// each boot, through the script hostler-wait.
func (a *app) bootWaitCommand() *cobra.Command {
	var request, faults, config string
	cmd := &cobra.Command{
		Use:   "boot-wait",
		Short: "Wait for all objects if the user-data or hostler.yaml says so",
		Args:  takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err, unused := a.bootWait(cmd.Context(), request, config), handlerErrors(faults)
			if err != nil && unused != nil {
				return together(cmd.Context(), []error{err, unused})
			}
			return cmp.Or(err, unused)
		},
	}
	cmd.Flags().StringVar(&request, "request", "/run/cloud-init/hostler-wait", "the `FILE` with the times of the user-data")
	cmd.Flags().StringVar(&faults, "errors", "/run/cloud-init/hostler-errors", "the `FILE` with the errors of the user-data")
	cmd.Flags().StringVar(&config, "config", systemConfig, "the `FILE` with the configuration of this host")
	return cmd
}

// readingTime bounds the time for which a boot without a wait waits for the agent
// to read conf.d.
const readingTime = 30 * time.Second

// userDataPrefix begins the names of the part handler's files.
const userDataPrefix = "cloud-init-"

// bootWait waits like waitAll for the longest of the times in both files. If that is
// 0, it only waits until the files of the user-data are in force, which a running
// agent decides before it is ready. It does not wait if the user-data has no declaration and hostler.yaml no time.
func (a *app) bootWait(ctx context.Context, request, config string) error {
	var limit spec.Duration
	content, err := readConfig(config)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError(config, err)
	}
	c, _, err := spec.ParseConfig(config, content)
	if err != nil && len(content) > 0 {
		return usage("%s", spec.Summary(err)) // every user can read the log of a boot, and a line may have a password
	}
	limit = c.CloudInit.Wait
	content, err = os.ReadFile(request) //nolint:gosec // the file of the part handler
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError(request, err)
	}
	for word := range strings.FieldsSeq(string(content)) {
		d, err := spec.ParseDuration(word)
		if err != nil {
			return usage("%s: %v", request, err)
		}
		limit = max(limit, d)
	}
	switch {
	case limit > 0:
		return a.waitAll(ctx, limit.Std())
	case len(content) > 0:
		limited, cancel := context.WithTimeout(ctx, readingTime)
		defer cancel()
		err := a.waitForFolder(ctx, limited, a.agent(), readingTime, userDataPrefix)
		if errors.Is(err, client.ErrNotRunning) {
			return nil // nobody asked for a wait
		}
		return err
	}
	return nil
}

// handlerErrors returns an error with the reasons why the part handler could not use
// parts of the user-data.
func handlerErrors(file string) error {
	content, err := os.ReadFile(file) //nolint:gosec // the file of the part handler
	switch text := strings.TrimSpace(string(content)); {
	case errors.Is(err, fs.ErrNotExist), err == nil && text == "":
		return nil
	case err != nil:
		return fileError(file, err)
	default:
		return fail(exitError, "%s", text)
	}
}
