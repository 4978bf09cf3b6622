package harness

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Archive returns user-data for an image that has hostler: a declaration for
// which cloud-init waits, and more parts.
func (c *Cloud) Archive(declaration, more string) string {
	wait := fmt.Sprintf("%.0fm", c.Patience.Minutes())
	return "#cloud-config-archive\n" + more + "- type: text/hostler-config\n  filename: site.yaml\n  X-Hostler-Wait: " + wait + "\n  content: |\n" + Indented(declaration)
}

// Indented returns a text as the block of a list's element.
func Indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

// FromPackage returns the user-data of `hostler user-data` that installs the
// package, which stands in the folder that is served at the URL.
func (c *Cloud) FromPackage(url, pkg, declaration string) string {
	c.Helper()
	file := filepath.Join(c.TempDir(), "host.yaml")
	if err := os.WriteFile(file, []byte(declaration), 0o600); err != nil {
		c.Fatal(err)
	}
	sum := strings.Fields(Run(c, "sha256sum", pkg))[0]
	return Run(c, filepath.Join(Binaries(c, ""), "hostler"), "user-data", "-f", file,
		"--deb", url+"/"+filepath.Base(pkg)+"#sha256="+sum, "--wait", fmt.Sprintf("%.0fm", c.Patience.Minutes()))
}

// Example returns the example of plain cloud-config for an apt repository and
// its key, and for a machine of the host's type and image.
func (c *Cloud) Example(url, key string) string {
	c.Helper()
	example, err := os.ReadFile(filepath.Join(Root(c), "examples/cloud-init/packages.yaml"))
	if err != nil {
		c.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(example), "-----BEGIN PGP PUBLIC KEY BLOCK-----")
	_, after, found := strings.Cut(rest, "-----END PGP PUBLIC KEY BLOCK-----")
	if !found || !strings.Contains(before, "https://deb.example.org/debian $RELEASE main") || !strings.Contains(after, "type: lxd") || !strings.Contains(after, "image: debian/12") {
		c.Fatalf("the example is another:\n%s", example)
	}
	before = strings.Replace(before, "https://deb.example.org/debian", url, 1)
	after = strings.NewReplacer("type: lxd", "type: "+c.Kind, "image: debian/12", "image: "+c.Image).Replace(after)
	return before + strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n      ") + after
}

// Repository makes a signed apt repository with a package. It returns its folder
// and its armoured public key.
func Repository(t testing.TB, pkg, suite string) (root, key string) {
	t.Helper()
	root = t.TempDir()
	home, err := os.MkdirTemp("", "gpg") //nolint:usetesting // the path of gpg-agent's socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = Try(nil, "gpgconf", "--homedir", home, "--kill", "all")
		_ = os.RemoveAll(home)
	})
	Run(t, "sh", "-ec", `
		cd "$1"
		mkdir -p pool "dists/$3/main/binary-amd64"
		cp "$2" pool/hostler.deb
		dpkg-scanpackages -m pool >"dists/$3/main/binary-amd64/Packages" 2>/dev/null
		cd "dists/$3"
		packages=main/binary-amd64/Packages
		printf 'Suite: %s\nCodename: %s\nComponents: main\nArchitectures: amd64\nDate: %s\nSHA256:\n %s %s %s\n' "$3" "$3" "$(date -Ru)" \
			"$(sha256sum <$packages | cut -c1-64)" "$(stat -c %s $packages)" $packages >Release
		export GNUPGHOME="$4"
		gpg --quiet --batch --pinentry-mode loopback --passphrase '' --quick-generate-key test@example.org ed25519 sign never
		gpg --quiet --batch --clearsign -o InRelease Release`, "sh", root, pkg, suite, home)
	return root, Run(t, "gpg", "--homedir", home, "--armor", "--export")
}

// Serve serves a folder at an address of this machine and returns the port.
func Serve(t testing.TB, address, folder string) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0")) //nolint:noctx // the test's life
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(folder)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	_, port, err = net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
