package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"hostler/agent"
	"hostler/agent/logging"
	"hostler/containerbroker/images"
	"hostler/internal/failpoint"
	"hostler/internal/paths"
	"hostler/internal/units"
	"hostler/internal/version"
)

func command() *cobra.Command {
	var config, stateDir, runDir, provisioners string
	var debug bool
	root := &cobra.Command{
		Use:           "hostlerd",
		Short:         "The agent: makes this host run the declared machines, and keeps them running",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.Version,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&config, "config", paths.DefaultConfig, "the host's configuration; conf.d is in the same directory")
	flags.StringVar(&stateDir, "state-dir", paths.DefaultStateDir, "the directory of the store and the images")
	flags.StringVar(&runDir, "run-dir", paths.DefaultRunDir, "where the socket is made")
	root.Flags().StringVar(&provisioners, "provisioners", string(agent.Auto), "where they run: auto, inside, units or elsewhere")
	flags.BoolVar(&debug, "debug", false, "log observations too")
	options := func() (agent.Options, error) {
		p, err := pathsOf(config, stateDir, runDir)
		return agent.Options{Paths: p, Version: version.Version, Logger: logging.NewLogger(debug), Program: "/proc/self/exe"}, err
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := options()
		if err != nil {
			return err
		}
		if o.Provisioners, err = agent.Placement(provisioners).Resolve(o.Paths); err != nil {
			return err
		}
		return agent.Run(cmd.Context(), o)
	}
	root.AddCommand(&cobra.Command{
		Use:   "worker NAME",
		Short: "Run one worker over the agent's socket, as its systemd unit does",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("hostlerd worker takes the NAME of one worker, like provisioner-lxd, and got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := options()
			if err != nil {
				return err
			}
			return agent.RunWorker(cmd.Context(), args[0], o)
		},
	}, &cobra.Command{
		Use:   "watchdog",
		Short: "Revert the armed change of the host's own network at its deadline",
		Long:  "Started by the agent: wait until the armed change of the host's own network is\nconfirmed or reverted, and revert it at its deadline even without the agent.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := options()
			if err != nil {
				return err
			}
			return agent.RunWatchdog(cmd.Context(), o)
		},
	}, internalCommand(options))
	return root
}

// pathsOf makes the paths of the command line absolute, because the daemon
// passes them to programs with another working directory.
func pathsOf(config, stateDir, runDir string) (paths.Paths, error) {
	for _, p := range []*string{&config, &stateDir, &runDir} {
		absolute, err := filepath.Abs(*p)
		if err != nil {
			return paths.Paths{}, fmt.Errorf("cannot find %s: %w", *p, err)
		}
		*p = absolute
	}
	return paths.New("", config, stateDir, runDir), nil
}

// internalCommand holds the commands for tests and packaging.
func internalCommand(options func() (agent.Options, error)) *cobra.Command {
	internal := &cobra.Command{Use: "internal", Hidden: true, Short: "For tests and packaging"}
	internal.AddCommand(&cobra.Command{
		Use:   "failpoints",
		Short: "List the crash points, and whether they are compiled in",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "enabled", failpoint.Enabled)
			for _, p := range failpoint.Points {
				fmt.Fprintln(cmd.OutOrStdout(), p)
			}
		},
	})
	internal.AddCommand(&cobra.Command{
		Use:   "scan PART ARCH",
		Short: "Check the image in standard input, with no rights, as the agent does before it keeps the image",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return images.ScanAlone(cmd.Context(), os.Stdin, cmd.OutOrStdout(), images.Part(args[0]), args[1])
		},
	})
	internal.AddCommand(&cobra.Command{
		Use:   "clean",
		Short: "Remove the agent's record of this host, or list the objects that prevent it, as `hostler clean` does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := options()
			if err != nil {
				return err
			}
			objects, err := agent.Clean(cmd.Context(), o)
			for _, object := range objects {
				fmt.Fprintln(cmd.OutOrStdout(), object)
			}
			return err
		},
	})
	internal.AddCommand(&cobra.Command{
		Use:   "unit",
		Short: "Run the command that the agent sends over the socket in standard input, as its transient units do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return units.Inside(cmd.Context(), os.Stdin, cmd.OutOrStdout())
		},
	})
	internal.AddCommand(&cobra.Command{
		Use:   "step TYPE",
		Short: "Take the step of a container type that standard input describes, as the transient units of confined workers do",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return agent.RunStep(cmd.Context(), args[0], os.Stdin, cmd.OutOrStdout())
		},
	})
	return internal
}
