package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"hostler/agent/spec/documents"
	"hostler/internal/mimemessage"
	"hostler/internal/parthandler"
)

// userDataLimit is the size of user-data that every cloud accepts, in bytes: EC2
// takes 16 KiB.
const userDataLimit = 16 << 10

type userDataFlags struct {
	files          []string
	deb, repo, key string
	wait           time.Duration
	gzip           bool
}

func (a *app) userDataCommand() *cobra.Command {
	var f userDataFlags
	cmd := &cobra.Command{
		Use:   "user-data -f FILE...",
		Short: "Print cloud-init user-data that makes a host",
		Long: "Print user-data with which cloud-init makes a stock image of Debian or Ubuntu a host with the\n" +
			"declared objects. It is a MIME message with a handler of declarations, the installation of the\n" +
			"package, and the declarations. The command checks the declarations first and needs no agent.\n" +
			"Without --deb and --repo the image must have the package already. It warns when the user-data\n" +
			"is larger than 16 KiB, which EC2 refuses.",
		Example: "  hostler user-data -f host.yaml --repo 'https://deb.example.org/debian trixie main' --key key.asc --wait 20m >user-data\n" +
			"  hostler user-data -f host.yaml --deb 'https://example.org/hostler.deb#sha256=0123...cdef' --gzip >user-data",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"deb", "repo", "key"} { // e.g. of a variable that is not set
				if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
					return usage("--%s is empty; give it a value, or leave it out", name)
				}
			}
			return a.userData(cmd.Context(), f)
		},
	}
	addFiles(cmd, &f.files, fileHelp)
	cmd.Flags().StringVar(&f.deb, "deb", "", "install the package of this `URL`, which ends in #sha256=DIGEST")
	cmd.Flags().StringVar(&f.repo, "repo", "", "install from the apt repository of this `URL`, with \"URL SUITE COMPONENT...\" from another suite than the image's release")
	cmd.Flags().StringVar(&f.key, "key", "", "the repository's public key: an armoured `FILE`")
	cmd.Flags().DurationVar(&f.wait, "wait", 0, "have cloud-init wait for all objects, at most this `TIME`, e.g. 20m")
	cmd.Flags().BoolVar(&f.gzip, "gzip", false, "compress the user-data")
	return cmd
}

func (a *app) userData(ctx context.Context, f userDataFlags) error {
	if f.wait < 0 {
		return usage("--wait must be positive, got %s", f.wait)
	}
	if f.gzip && a.env.Term.Output() {
		return usage("--gzip does not write to a terminal").hint("redirect it: hostler user-data ... --gzip >user-data")
	}
	install, err := installation(f)
	if err != nil {
		return err
	}
	docs, from, err := readDocuments(ctx, f.files, a.env.Stdin)
	if err != nil {
		return err
	}
	declared, err := checkDocuments(docs, from, error.Error, documents.Request{})
	if err != nil {
		return from.name(err)
	}
	parts := []mimemessage.Part{{ContentType: "text/part-handler", Name: "hostler_part_handler.py", Body: parthandler.Source}}
	if install != nil {
		text, err := yaml.Marshal(install)
		if err != nil {
			return fmt.Errorf("cannot write the user-data: %w", err)
		}
		parts = append(parts, mimemessage.Part{ContentType: "text/cloud-config", Name: "hostler-package.yaml", Body: "#cloud-config\n" + string(text)})
	}
	files := map[string]string{}
	for i, d := range docs {
		file := parthandler.File(declared[i].Name)
		if other := files[file]; other != "" {
			return usage("the declarations %q and %q would have the same file on the host, %s", other, declared[i].Name, file).hint("give one of them another name: the name of its file, or `name:`")
		}
		files[file] = declared[i].Name
		parts = append(parts, mimemessage.Part{ContentType: parthandler.Type, Name: declared[i].Name + ".yaml", Body: d.Content})
	}
	out, err := mimemessage.Join(parts)
	if err != nil {
		return err
	}
	if f.gzip {
		if out, err = zipped(out); err != nil {
			return fmt.Errorf("cannot compress the user-data: %w", err)
		}
	}
	a.remark("the user-data has " + size(int64(len(out))))
	if len(out) > userDataLimit {
		advice := "; compress it with --gzip"
		if f.gzip {
			advice = "; have the host fetch the declarations, e.g. with `#include URL`"
		}
		a.remark("warning: some clouds take at most " + size(userDataLimit) + " of user-data" + advice)
	}
	_, err = a.env.Stdout.Write(out)
	return err
}

func zipped(text []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// cloudConfig is the part of the user-data that installs the package.
type cloudConfig struct {
	Files         []cloudFile `yaml:"write_files,omitempty"`
	Apt           *aptSources `yaml:"apt,omitempty"`
	PackageUpdate bool        `yaml:"package_update,omitempty"`
	Packages      []string    `yaml:"packages,omitempty"`
	Runcmd        [][]string  `yaml:"runcmd,omitempty"`
}

type cloudFile struct {
	Path    string `yaml:"path"`
	Content string `yaml:"content"`
}

type aptSources struct {
	Sources map[string]aptSource `yaml:"sources"`
}

type aptSource struct {
	Source string `yaml:"source"`
}

// repositoryKey is the file of the key of hostler's repository. cloud-init
// writes files before it writes the sources of apt. Given the key as a part of
// the source, it would need gpg, which a stock image may lack.
const repositoryKey = "/etc/apt/keyrings/hostler.asc"

// installation returns the cloud-config that installs the package and waits, or
// nil if there is nothing to do.
func installation(f userDataFlags) (*cloudConfig, error) {
	c := &cloudConfig{}
	wait := []string{"hostler", "wait", "--all", "--timeout", duration(f.wait)}
	switch {
	case f.deb != "" && f.repo != "":
		return nil, usage("--deb and --repo exclude each other")
	case f.key != "" && f.repo == "", f.repo != "" && f.key == "":
		return nil, usage("--repo and --key belong together")
	case f.repo != "":
		source, err := aptSourceOf(f.repo)
		if err != nil {
			return nil, err
		}
		key, err := armouredKey(f.key)
		if err != nil {
			return nil, err
		}
		c.Files = []cloudFile{{repositoryKey, key}}
		c.Apt = &aptSources{Sources: map[string]aptSource{"hostler": {source}}}
		c.PackageUpdate, c.Packages = true, []string{"hostler"}
	case f.deb != "":
		script, err := debScript(f.deb)
		if err != nil {
			return nil, err
		}
		if f.wait > 0 { // after a failure, a wait for the image's hostler may succeed
			script += strings.Join(wait, " ") + "\n"
		}
		c.Runcmd = [][]string{{"sh", "-ec", script}}
		return c, nil
	case f.wait == 0:
		return nil, nil
	}
	if f.wait > 0 {
		c.Runcmd = [][]string{wait}
	}
	return c, nil
}

// aptSourceOf returns a source of apt from "URL [SUITE [COMPONENT...]]".
// cloud-init replaces $RELEASE.
func aptSourceOf(repo string) (string, error) {
	fields := strings.Fields(repo)
	if len(fields) == 0 || !isWeb(fields[0]) {
		return "", usage("--repo begins with a URL like https://deb.example.org/debian, got %q", repo)
	}
	if len(fields) == 1 {
		fields = append(fields, "$RELEASE")
	}
	if len(fields) == 2 && !strings.HasSuffix(fields[1], "/") { // a flat repository has no components
		fields = append(fields, "main")
	}
	return "deb [signed-by=" + repositoryKey + "] " + strings.Join(fields, " "), nil
}

// armouredKey reads a repository's key.
func armouredKey(file string) (string, error) {
	key, err := os.ReadFile(file) //nolint:gosec // the user names the file
	if err != nil {
		return "", fileError(file, err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(key), []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----")) {
		return "", usage("%s is not an armoured public key", file).hint("`gpg --armor --export KEY` writes one")
	}
	return strings.TrimSpace(string(key)) + "\n", nil
}

// debScript returns a script that installs the package of a URL. apt's own helper
// fetches it and checks the digest, since a stock image may lack curl. A file of the
// package that the user-data has written already stays, without a question.
func debScript(deb string) (string, error) {
	address, digest, _ := strings.Cut(deb, "#sha256=")
	if raw, err := hex.DecodeString(digest); !isWeb(address) || err != nil || len(raw) != 32 {
		return "", usage("--deb takes a URL#sha256=DIGEST, got %q", deb).hint("`sha256sum FILE` prints the digest")
	}
	quoted := "'" + strings.ReplaceAll(address, "'", `'\''`) + "'"
	return `deb=/var/cache/hostler-user-data.deb
/usr/lib/apt/apt-helper download-file ` + quoted + ` "$deb" SHA256:` + strings.ToLower(digest) + `
apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold install "$deb"
rm -f "$deb"
`, nil
}

// isWeb says whether the text is a URL of http or https.
func isWeb(text string) bool {
	u, err := url.Parse(text)
	return err == nil && slices.Contains([]string{"http", "https"}, u.Scheme) && u.Host != "" && !strings.ContainsAny(text, " \t\n\"")
}
