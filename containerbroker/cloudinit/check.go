package cloudinit

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"hostler/internal/fault"
	"hostler/internal/plainword"
)

var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// check refuses values that cannot be passed to cloud-init safely. Errors name
// only the field, because the values may be secrets.
func check(g Input) error {
	if g.Hostname != "" && !hostname.MatchString(g.Hostname) {
		return fault.New(fault.Invalid, "cannot use the hostname: it may hold letters, digits, - and . only")
	}
	for _, f := range []struct{ name, value string }{
		{"instance id", g.InstanceID},
		{"HTTP proxy", g.HTTPProxy},
		{"HTTPS proxy", g.HTTPSProxy},
		{"list of hosts without proxy", g.NoProxy},
		{"apt mirror", g.AptMirror},
		{"apt proxy", g.AptProxy},
	} {
		if !plainword.Is(f.value) {
			return fault.New(fault.Invalid, "cannot use the %s: it holds %s", f.name, plainword.Refused)
		}
	}
	for _, key := range g.SSHKeys {
		if strings.TrimSpace(key) == "" || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
			return fault.New(fault.Invalid, "cannot use an SSH key: it is empty or holds control characters")
		}
	}
	if !utf8.ValidString(g.UserData) || strings.ContainsFunc(g.UserData, unsafeText) {
		return fault.New(fault.Invalid, "cannot use user-data: it holds control characters or is not UTF-8")
	}
	return nil
}

func unsafeText(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
}

// MetaData returns cloud-init's meta-data, for hypervisors that do not make it
// themselves. It fails with fault.Invalid if check() refuses g.
func MetaData(g Input) ([]byte, error) {
	if err := check(g); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(struct {
		InstanceID string `json:"instance-id,omitempty"`
		Hostname   string `json:"local-hostname,omitempty"`
	}{g.InstanceID, g.Hostname}, "", "  ")
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot encode cloud-init meta-data: %v", err)
	}
	return append(data, '\n'), nil
}
