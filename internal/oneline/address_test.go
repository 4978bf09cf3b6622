package oneline

import "testing"

// An address in a message has neither a user nor a query; other references stay.
func TestAddressHasNoSecrets(t *testing.T) {
	for address, want := range map[string]string{
		"debian/12":                       "debian/12",
		"lxd:my-image":                    "lxd:my-image",
		"file:/a@b#sha256=0a":             "file:/a@b#sha256=0a",
		"https://m.test/a@b#sha256=0a":    "https://m.test/a@b#sha256=0a",
		"https://u:p@m.test/x#sha256=0a":  "https://m.test/x#sha256=0a",
		"https://u:p/q@m.test":            "https://m.test",
		"HTTPS://u@m.test/x":              "HTTPS://m.test/x",
		"https://m.test/x?sig=a#sha256=0": "https://m.test/x#sha256=0",
		"ftp://m.test?sig=a&b=c":          "ftp://m.test",
	} {
		if got := Address(address); got != want {
			t.Errorf("%q gives %q, want %q", address, got, want)
		}
	}
}
