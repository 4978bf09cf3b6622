// Package mountoption distinguishes mount options for the kernel from options
// that only mount programs act on, e.g. x-systemd.automount. Both the check of
// a declaration and the mount use it, so they refuse the same options.
package mountoption

import "strings"

// ForPrograms reports whether only mount programs act on an option (NAME or
// NAME=VALUE), or whether it would change the meaning of the kernel's call.
func ForPrograms(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return strings.HasPrefix(strings.ToLower(name), "x-") || forPrograms[name]
}

var forPrograms = map[string]bool{
	"loop": true, "offset": true, "sizelimit": true, "bind": true, "rbind": true, "remount": true, "move": true,
	"user": true, "users": true, "owner": true, "group": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true, "comment": true,
}
