package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

func (a *app) volumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume COMMAND",
		Short: "Make a volume larger",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usage("volume needs a command").hint("like `hostler volume resize data 2GiB`")
		},
	}
	cmd.AddCommand(a.resizeCommand())
	return cmd
}

func (a *app) resizeCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "resize VOLUME SIZE",
		Short: "Make a volume larger while it is used",
		Long: "Grow a volume and the filesystem on it while machines use it. The declaration is changed\n" +
			"accordingly. Volumes cannot shrink.",
		Example: "  hostler volume resize data 2GiB --wait",
		Args:    takes(2, 2, "a VOLUME and a SIZE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.TrimPrefix(args[0], spec.KindVolume+"/")
			if err := checkName(name); err != nil {
				return err
			}
			if _, err := spec.ParseSize(args[1]); err != nil {
				return usage("%q is not a size", args[1]).hint("write a size like 512MiB or 2GiB")
			}
			return a.resize(cmd.Context(), name, args[1], wait, timeout)
		},
		ValidArgsFunction: a.completeVolume,
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the volume and its filesystem have grown")
	addTimeout(cmd, &timeout, "--wait waits")
	return cmd
}

func (a *app) resize(ctx context.Context, name, to string, wait bool, timeout time.Duration) error {
	agent := a.agent()
	r := reference{spec.KindVolume, name}
	if err := agent.ResizeVolume(ctx, name, to); err != nil {
		return near(ctx, agent, r, err)
	}
	if !wait {
		a.note("%s grows to %s", r, to)
		return nil
	}
	return a.waitFor(ctx, agent, goals{ready: []reference{r}}, timeout, exitError)
}

func attachmentTable(rows []client.AttachmentRow, now time.Time, wide bool) *table {
	t := &table{head: []string{"OBJECT", "MACHINE", "PATH", "ACCESS", "STATUS", "MESSAGE"}}
	if wide {
		t.head = []string{"OBJECT", "MACHINE", "PATH", "ACCESS", "STATUS", "SOURCE", "ATTEMPTS", "NEXT-RETRY", "MESSAGE"}
	}
	for _, r := range rows {
		access := map[bool]string{true: "read-only", false: "read-write"}[r.ReadOnly]
		row := []string{r.Object, r.Machine, r.Path, access, string(r.Status)}
		if wide {
			row = append(row, r.Source, strconv.Itoa(r.Attempts), until(now, r.NextRetry))
		}
		t.add(append(row, r.Message)...)
	}
	return t
}

func csvAttachments(rows []client.AttachmentRow) *table {
	t := &table{head: []string{"name", "object", "machine", "path", "source", "read-only", "status", "message", "attempts", "next-retry"}}
	for _, r := range rows {
		t.add(r.Name, r.Object, r.Machine, r.Path, r.Source, strconv.FormatBool(r.ReadOnly), string(r.Status), r.Message, strconv.Itoa(r.Attempts), stamp(r.NextRetry))
	}
	return t
}

func blockDeviceTable(rows []client.BlockDevice, _ time.Time, wide bool) *table {
	t := &table{head: []string{"NAME", "TYPE", "SIZE", "USE", "CONTENT", "MOUNTS"}}
	if wide {
		t.head = []string{"NAME", "TYPE", "SIZE", "USE", "CONTENT", "MOUNTS", "UUID", "WWN", "SERIAL", "PREFERRED", "BACKING"}
	}
	for _, r := range rows {
		use := map[bool]string{true: "in use", false: "free"}[r.InUse]
		if r.ReadOnly {
			use += ", read-only"
		}
		row := []string{r.Name, r.Type, size(r.Size), use, r.Content, strings.Join(r.Mounts, " ")}
		if wide {
			row = append(row, r.UUID, r.WWN, r.Serial, r.Preferred, r.Backing)
		}
		t.add(row...)
	}
	return t
}

func csvBlockDevices(rows []client.BlockDevice) *table {
	t := &table{head: []string{"name", "path", "preferred", "type", "size", "read-only", "in-use", "content", "uuid", "label", "wwn", "serial", "links", "mounts", "backing"}}
	for _, r := range rows {
		t.add(r.Name, r.Path, r.Preferred, r.Type, strconv.FormatInt(r.Size, 10), strconv.FormatBool(r.ReadOnly), strconv.FormatBool(r.InUse),
			r.Content, r.UUID, r.Label, r.WWN, r.Serial, strings.Join(r.Links, " "), strings.Join(r.Mounts, " "), r.Backing)
	}
	return t
}
