package oneline

import (
	"net/url"
	"regexp"
	"strings"
)

var (
	user = regexp.MustCompile(`://[^/?#]*@`)
	// user of an address that cannot be parsed, e.g. for a slash in the password
	anyUser = regexp.MustCompile(`://.*@`)
	query   = regexp.MustCompile(`\?[^#]*`)
)

// Address returns an address or a reference of an image without the user and the
// query, which may hold secrets.
func Address(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	form := user
	if _, err := url.Parse(s); err != nil {
		form = anyUser
	}
	return query.ReplaceAllString(form.ReplaceAllString(s, "://"), "")
}
