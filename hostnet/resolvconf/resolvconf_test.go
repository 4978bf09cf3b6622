package resolvconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// B5: guests without a DHCP server of ours use the host's name servers: those
// of resolv.conf, or of systemd-resolved's own list if resolv.conf names only
// the host itself.
func TestGuestsUseTheHostsNameServers(t *testing.T) {
	const stub = "# made by systemd-resolved\nnameserver 127.0.0.53\noptions edns0\nsearch .\n"
	for _, c := range []struct{ name, first, second, want, search string }{
		{name: "none"},
		{name: "empty files", first: "\n", second: "\n"},
		{name: "spaces and comments", first: "  nameserver  192.0.2.1  # the router\n;nameserver 192.0.2.9\nnameserver\t2001:db8::1\n", want: "192.0.2.1 2001:db8::1"},
		{name: "the host's own stub", first: stub, second: "nameserver 192.0.2.2\n", want: "192.0.2.2"},
		{name: "a stub and a server", first: stub + "nameserver 192.0.2.1\n", second: "nameserver 192.0.2.2\n", want: "192.0.2.1"},
		{name: "only the host can ask it", first: stub, second: "nameserver ::1\nnameserver fe80::1%eth0\n"},
		{name: "domains", first: stub, second: "nameserver 192.0.2.2\nsearch corp.example. lab.example ~x bad_ corp.example\n", want: "192.0.2.2", search: "corp.example lab.example"},
		{name: "the last line of domains", first: "domain a.example\nsearch b.example # c.example\nnameserver 192.0.2.1\n", second: "search d.example\n", want: "192.0.2.1", search: "b.example"},
		{name: "no addresses", first: "nameserver\nnameserver dns.example\ndomain 192.0.2.1\n", search: "192.0.2.1"},
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
			got := Read(root)
			if fmt.Sprint(got.Servers) != "["+c.want+"]" || fmt.Sprint(got.Search) != "["+c.search+"]" {
				t.Errorf("got %+v, want %q, %q", got, c.want, c.search)
			}
			if local := strings.Contains(c.first, "127.0.0.53"); got.Local != local {
				t.Errorf("local %v, want %v", got.Local, local)
			}
		})
	}
}
