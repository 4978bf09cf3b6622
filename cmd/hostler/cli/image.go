package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler/agent/client"
	"hostler/agent/spec"
)

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Look after the images machines are made from",
		Args:  cobra.ArbitraryArgs,
		RunE:  onlyCommands,
	}
	cmd.AddCommand(a.imageList(), a.imageImport(), a.imageBuild(), a.imageDelete())
	return cmd
}

// onlyCommands is the action of a command that has only subcommands.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

func (a *app) imageList() *cobra.Command {
	var available bool
	cmd := prints(&cobra.Command{
		Use:   "list [REFERENCE...]",
		Short: "List images in the cache and in the hypervisors",
		Long:  "List images in the cache and in the hypervisors. With --available, list the images that can be\nbuilt on this host, for which container types, and from which mirror.",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if available {
				return a.availableImages(cmd.Context(), args)
			}
			return a.get(cmd.Context(), kindImage, args)
		},
	}, outTable, outWide, outJSON, outYAML, outCSV, outName)
	cmd.Flags().BoolVar(&available, "available", false, "list the images that can be built")
	return cmd
}

// availableImages prints the images that can be built.
func (a *app) availableImages(ctx context.Context, names []string) error {
	sent, err := a.agent().Get(ctx, "images/available")
	if err != nil {
		return err
	}
	l, err := listRows(kindImage, sent, availableListing)
	if err != nil {
		return err
	}
	keep, missing := l.find(names)
	if err := a.printListing(l, keep, len(missing) == 0); err != nil || len(missing) == 0 {
		return err
	}
	return l.absent(missing)
}

func availableListing(rows []client.AvailableImage) *listing {
	tableOf := func(rows []client.AvailableImage, head ...string) *table {
		t := &table{head: head}
		for _, i := range rows {
			t.add(i.Reference, strings.Join(i.Types, " "), cmp.Or(i.Problem, i.From))
		}
		return t
	}
	return newListing(kindImage, rows, func(i client.AvailableImage) string { return i.Reference },
		func(rows []client.AvailableImage, _ time.Time, _ bool) *table {
			return tableOf(rows, "REFERENCE", "TYPES", "FROM")
		},
		func(rows []client.AvailableImage) *table { return tableOf(rows, "reference", "types", "from") })
}

var digestForm = regexp.MustCompile(`^(sha256[:=])?[0-9a-f]{64}$`)

func (a *app) imageImport() *cobra.Command {
	var as, digest string
	cmd := &cobra.Command{
		Use:     "import FILE --as REFERENCE",
		Short:   "Take an image file of this host into the cache",
		Long:    "Take a rootfs or image file of this host into the cache under a reference. With --digest it\nis refused if its sha256 differs; without it, the digest is computed and printed.",
		Example: "  hostler image import rootfs.tar.xz --as mine/1 --digest sha256:...",
		Args:    takes(1, 1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case as == "":
				return usage("image import needs --as REFERENCE").hint("like --as mine/1; machines name it with `image: mine/1`")
			case digest != "" && !digestForm.MatchString(digest):
				return usage("--digest takes a sha256 of 64 hexadecimal digits, got %q", digest)
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("cannot find %s: %w", args[0], err)
			}
			digest = strings.TrimPrefix(strings.TrimPrefix(digest, "sha256:"), "sha256=")
			show, end := a.imageProgress(as)
			img, err := a.agent().ImageImport(cmd.Context(), path, as, digest, show)
			end()
			if err != nil {
				return err
			}
			a.note("imported %s (%s, sha256 %s)", line(img.Reference), size(img.Size), line(img.Digest))
			return nil
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "the `REFERENCE` machines name it by")
	cmd.Flags().StringVar(&digest, "digest", "", "the `SHA256` the file must have")
	return cmd
}

// buildTypes are the container types for which the agent can build images.
var buildTypes = spec.TypeNames()

func (a *app) imageBuild() *cobra.Command {
	var form string
	cmd := &cobra.Command{
		Use:   "build REFERENCE",
		Short: "Build an image on this host from its own apt mirror",
		Long: "Build an image on this host from its own apt mirror, in place of the one that the cache holds.\n" +
			"Containers take another form of it than KVM guests, which start from a disk: --type says whose.",
		Example: "  hostler image build debian/12\n  hostler image build debian/12 --type kvm",
		Args:    takes(1, 1, "one REFERENCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(buildTypes, form) {
				return usage("no image can be built for type %q%s", form, didYouMean(form, buildTypes)).
					hint("types are " + strings.Join(buildTypes, ", "))
			}
			defer a.liftHold()()
			show, end := a.imageProgress(args[0])
			img, err := a.agent().ImageBuild(cmd.Context(), args[0], spec.ContainerType(form), show)
			end()
			if err != nil {
				return err
			}
			a.note("built %s (%s, %s, sha256 %s)", line(img.Reference), line(img.Format), size(img.Size), line(img.Digest))
			return nil
		},
	}
	cmd.Flags().StringVar(&form, "type", buildTypes[0], "the container `TYPE` to build it for: "+strings.Join(buildTypes, ", "))
	completeFlag(cmd, "type", buildTypes...)
	return cmd
}

func (a *app) imageDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete REFERENCE...",
		Short: "Remove unused images",
		Args:  takes(1, -1, "a REFERENCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.deleteImages(cmd.Context(), args)
		},
		ValidArgsFunction: a.completeImages,
	}
}

func (a *app) deleteImages(ctx context.Context, references []string) error {
	agent := a.agent()
	var broken []string
	for _, r := range references {
		if err := agent.ImageDelete(ctx, r); err != nil {
			if ctx.Err() != nil {
				return err
			}
			broken = append(broken, err.Error())
			continue
		}
		a.note("image %s removed", line(r))
	}
	if len(broken) > 0 {
		return fail(exitError, "%s", strings.Join(broken, "\n"))
	}
	return nil
}

// imageProgress returns a function that shows the progress of a long operation
// on an image, and a function that ends the display.
func (a *app) imageProgress(reference string) (show func(message string, percent int), end func()) {
	p := a.progress()
	show = func(message string, percent int) {
		l := progressLine{name: reference, text: message, verdict: undecided}
		if percent >= 0 {
			l.percent, l.text = &percent, withPercent(message, &percent)
		}
		p.update([]progressLine{l})
	}
	return show, p.end
}
