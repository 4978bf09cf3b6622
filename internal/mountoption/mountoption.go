// Package mountoption tells mount options that are for the kernel from those
// that only programs act on, so that what is refused when it is declared and
// what is refused when it is mounted is the same.
package mountoption

import "strings"

// ForPrograms says whether an option, as NAME or NAME=VALUE, is one that mount
// programs act on, or one that would turn the kernel's call into another.
func ForPrograms(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return strings.HasPrefix(strings.ToLower(name), "x-") || forPrograms[name]
}

var forPrograms = map[string]bool{
	"loop": true, "offset": true, "sizelimit": true, "bind": true, "rbind": true, "remount": true, "move": true,
	"user": true, "users": true, "owner": true, "group": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true, "comment": true,
}
