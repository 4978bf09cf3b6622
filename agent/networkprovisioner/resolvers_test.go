package networkprovisioner

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// B5: guests without a DHCP server of ours ask whom the host asks: what is in
// resolv.conf, or in systemd-resolved's own list where that names only the
// host itself.
func TestResolvers(t *testing.T) {
	const stub = "# made by systemd-resolved\nnameserver 127.0.0.53\noptions edns0\nsearch .\n"
	for _, c := range []struct{ name, first, second, want string }{
		{name: "none"},
		{name: "empty files", first: "\n", second: "\n"},
		{name: "spaces and comments", first: "  nameserver  192.0.2.1  # the router\n;nameserver 192.0.2.9\nnameserver\t2001:db8::1\n", want: "192.0.2.1 2001:db8::1"},
		{name: "the host's own stub", first: stub, second: "nameserver 192.0.2.2\n", want: "192.0.2.2"},
		{name: "a stub and a server", first: stub + "nameserver 192.0.2.1\n", second: "nameserver 192.0.2.2\n", want: "192.0.2.1"},
		{name: "only the host can ask it", first: stub, second: "nameserver ::1\nnameserver fe80::1%eth0\n"},
		{name: "no addresses", first: "nameserver\nnameserver dns.example\ndomain 192.0.2.1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range map[string]string{"etc/resolv.conf": c.first, "run/systemd/resolve/resolv.conf": c.second} {
				if text == "" {
					continue
				}
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := fmt.Sprint(resolvers(root)); got != "["+c.want+"]" {
				t.Errorf("got %s, want %q", got, c.want)
			}
		})
	}
}
