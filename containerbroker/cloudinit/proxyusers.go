package cloudinit

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// HasProxyUsers reports whether the address of one of the guest's proxies has a
// user name.
func HasProxyUsers(g Input) bool {
	return withoutUser(g.HTTPProxy) != g.HTTPProxy || withoutUser(g.HTTPSProxy) != g.HTTPSProxy || withoutUser(g.AptProxy) != g.AptProxy
}

// OnlyProxyUsersDiffer reports whether userData differs from the user-data of g
// only by user names and passwords in the proxies' addresses, which earlier
// versions wrote into guests.
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

// restoreUser sets a proxy's address to the previous one if that differs only
// by having a user name and password.
func restoreUser(address *string, previous string) {
	if bare := withoutUser(previous); bare != previous && bare == *address {
		*address = previous
	}
}

// withoutUser returns the address without its user name and password. An
// address that has neither is returned unchanged.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	u.User = nil
	return u.String()
}
