package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
)

// maxConfig bounds the part of the configuration file that is read, in bytes.
const maxConfig = maxDeclaration

// awaitConfig reads the configuration when the agent starts. It waits while
// another process is still writing the file.
func (h *host) awaitConfig(ctx context.Context) (spec.Config, error) {
	for deadline := h.now().Add(10 * whileWritten); ; {
		config, err := h.readConfig()
		if !errors.Is(err, errBeingWritten) || h.now().After(deadline) {
			return config, err
		}
		select {
		case <-ctx.Done():
			return config, ctx.Err()
		case <-time.After(whileWritten):
		}
	}
}

// readConfig reads the configuration; an absent file means defaults. It fails
// with errBeingWritten while another process writes the file.
func (h *host) readConfig() (spec.Config, error) {
	content, err := readWhole(h.paths.Config, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return spec.DefaultConfig(), nil
	}
	if err != nil {
		return spec.Config{}, fmt.Errorf("cannot read the configuration: %w", err)
	}
	config, warnings, err := spec.ParseConfig(h.paths.Config, content)
	if err != nil {
		return spec.Config{}, err
	}
	text := make([]string, len(warnings))
	for i, w := range warnings {
		text[i] = w.Summary()
		h.logger.Warn("The configuration has something that is not used.", "warning", text[i])
	}
	h.notice("configuration-warnings", strings.Join(text, "; "))
	return config, nil
}

// followConfiguration is the worker that adopts changes of the configuration
// file. A file with errors changes nothing; a notice in the status reports
// them.
func (h *host) followConfiguration(ctx context.Context) error {
	isConfig := func(path string) bool { return filepath.Base(path) == filepath.Base(h.paths.Config) }
	return watchFolder(ctx, filepath.Dir(h.paths.Config), isConfig, func() (time.Duration, error) {
		config, err := h.readConfig()
		if errors.Is(err, errBeingWritten) {
			h.notice("configuration", fmt.Sprintf("%s is not used yet: %v", h.paths.Config, errBeingWritten))
			return whileWritten, nil
		}
		if err == nil && config.Namespace != h.config().Namespace {
			err = fmt.Errorf("the namespace cannot change while the agent runs: restart it to manage namespace %q instead of %q", config.Namespace, h.config().Namespace)
		}
		if err != nil {
			h.notice("configuration", fmt.Sprintf("%s is not used: %s", h.paths.Config, spec.Summary(err)))
			h.logger.Warn("The changed configuration is not used.", "error", spec.Summary(err))
			return 0, nil
		}
		h.notice("configuration", "")
		h.notice("configuration-restart", needRestart(h.paths.Config, h.begun, config))
		return 0, h.writeConfig(ctx, config)
	})
}

// needRestart returns a notice that names the changed keys that take effect
// only after a restart of the agent: those for the preparation of the host and
// for the sources of images. Guests get new proxies and mirrors at once.
func needRestart(file string, begun, now spec.Config) string {
	var keys []string
	for key, same := range map[string]bool{
		"types": begun.Types == now.Types, "proxy": begun.Proxy == now.Proxy, "apt": begun.Apt == now.Apt,
		"images": reflect.DeepEqual(begun.Images, now.Images),
	} {
		if !same {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	slices.Sort(keys)
	return fmt.Sprintf("%s: changes under %s take effect when the agent is restarted: `systemctl restart hostlerd` (machines are not touched)",
		file, strings.Join(keys, ", "))
}
