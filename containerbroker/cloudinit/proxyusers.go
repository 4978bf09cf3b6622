package cloudinit

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// HasProxyUsers reports whether a proxy of the guest has a user name.
func HasProxyUsers(g Input) bool {
	return withoutUser(g.HTTPProxy) != g.HTTPProxy || withoutUser(g.HTTPSProxy) != g.HTTPSProxy || withoutUser(g.AptProxy) != g.AptProxy
}

// OnlyProxyUsersDiffer reports whether user-data of an earlier version differs
// from the guest's only by user names and passwords in the proxies' addresses.
// Earlier versions wrote them into guests.
func OnlyProxyUsersDiffer(g Input, userData string) bool {
	parts, err := inspect([]byte(userData))
	if err != nil {
		return false
	}
	for _, part := range parts {
		var generated struct {
			Apt   apt    `json:"apt"`
			Files []file `json:"write_files"`
		}
		text, is := strings.CutPrefix(part.Body, "#cloud-config\n")
		if !is || json.Unmarshal([]byte(text), &generated) != nil {
			continue
		}
		restoreUser(&g.AptProxy, generated.Apt.HTTPProxy)
		for _, f := range generated.Files {
			for line := range strings.Lines(f.Content) {
				switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
				case "http_proxy":
					restoreUser(&g.HTTPProxy, value)
				case "https_proxy":
					restoreUser(&g.HTTPSProxy, value)
				}
			}
		}
	}
	restored, err := UserData(g)
	return err == nil && HasProxyUsers(g) && bytes.Equal(restored, []byte(userData))
}

// restoreUser sets a proxy's address to a former address that differs only by
// its user name and password.
func restoreUser(address *string, previous string) {
	if bare := withoutUser(previous); bare != previous && bare == *address {
		*address = previous
	}
}

// withoutUser returns the address without user name and password, or the same
// text if it has none.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	u.User = nil
	return u.String()
}
