package conffiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"hostler/agent/spec"
)

// maxConfig bounds the part of the configuration file that is read, in bytes.
const maxConfig = maxDeclaration

// Configuration keeps the host's configuration in step with its file.
type Configuration struct {
	// Path is the file, hostler.yaml.
	Path string
	// Notice is like Options.Notice.
	Notice func(key, text string)
	Logger *slog.Logger
	Now    func() time.Time
	// Current returns the configuration in force. Write puts another one in force.
	Current func() spec.Config
	Write   func(ctx context.Context, c spec.Config) error

	// begun is the configuration at the start of this process.
	begun spec.Config
	// absent is true if there was no file then.
	absent bool
}

// Await reads the configuration when the agent starts. It waits while another
// process is still writing the file. Without a file, it returns the defaults.
func (c *Configuration) Await(ctx context.Context) (spec.Config, error) {
	for deadline := c.Now().Add(10 * whileWritten); ; {
		config, err := c.read()
		if c.absent = errors.Is(err, fs.ErrNotExist); c.absent {
			config, err = spec.DefaultConfig(), nil
		}
		if c.begun = config; !errors.Is(err, errBeingWritten) || c.Now().After(deadline) {
			return config, err
		}
		select {
		case <-ctx.Done():
			return config, ctx.Err()
		case <-time.After(whileWritten):
		}
	}
}

// Resume returns the configuration to begin with. This is the one that Await
// returned, or last, the store's, if there was no file: the defaults may destroy
// what the lost file protected. last is nil in a new store.
func (c *Configuration) Resume(config spec.Config, last *spec.Config) spec.Config {
	if c.absent && last != nil {
		c.begun = *last
		return *last
	}
	return config
}

// missing returns a notice that the absent file is not followed, or "" if the
// defaults, which a host without a file has, are in force.
func (c *Configuration) missing() string {
	if reflect.DeepEqual(c.Current(), spec.DefaultConfig()) {
		return ""
	}
	return c.Path + " is missing: the last configuration is kept; restore the file, or create it empty to have the defaults"
}

// read reads the configuration. It fails with errBeingWritten while another process
// writes the file, and with fs.ErrNotExist if it is absent.
func (c *Configuration) read() (spec.Config, error) {
	content, err := readWhole(c.Path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		c.Notice("configuration-warnings", "")
	}
	if err != nil {
		return spec.Config{}, fmt.Errorf("cannot read the configuration: %w", err)
	}
	config, warnings, err := spec.ParseConfig(c.Path, content)
	text := make([]string, len(warnings))
	for i, w := range warnings {
		text[i] = w.Summary()
		c.Logger.Warn("The configuration has something that is not used.", "warning", text[i])
	}
	c.Notice("configuration-warnings", strings.Join(text, "; "))
	return config, err
}

// Run adopts changes of the file until ctx ends. A file with errors and an absent
// file change nothing; a notice in the status reports them.
func (c *Configuration) Run(ctx context.Context) error {
	isConfig := func(path string) bool { return filepath.Base(path) == filepath.Base(c.Path) }
	return watchFolder(ctx, filepath.Dir(c.Path), isConfig, func() (time.Duration, error) {
		config, err := c.read()
		if errors.Is(err, errBeingWritten) {
			c.Notice("configuration", fmt.Sprintf("%s is not used yet: %v", c.Path, errBeingWritten))
			return whileWritten, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			c.Notice("configuration", c.missing())
			c.Notice("configuration-restart", "")
			return 0, nil
		}
		if err == nil && config.Namespace != c.Current().Namespace {
			err = fmt.Errorf("the namespace cannot change while the agent runs: restart it to manage namespace %q instead of %q", config.Namespace, c.Current().Namespace)
		}
		if err != nil {
			c.Notice("configuration", fmt.Sprintf("%s is not used: %s", c.Path, spec.Summary(err)))
			c.Logger.Warn("The changed configuration is not used.", "error", spec.Summary(err))
			return 0, nil
		}
		c.Notice("configuration", "")
		c.Notice("configuration-restart", needRestart(c.Path, c.begun, config))
		config.Types = c.begun.Types // a provisioner that starts must not have others than the agent
		return 0, c.Write(ctx, config)
	})
}

// needRestart returns a notice that names the changed keys that take effect
// only after a restart of the agent, or "". The agent prepares the host and
// chooses sources of images by these keys. Guests get new proxies and mirrors
// at once.
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
