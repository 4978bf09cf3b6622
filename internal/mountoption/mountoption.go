// Package mountoption distinguishes mount options for the kernel from options
// that only mount programs act on, e.g. x-systemd.automount. The check of a
// declaration and the mount both use this package, so that they refuse the same
// options.
package mountoption

import "strings"

// ForPrograms reports whether the kernel must not get an option (NAME or
// NAME=VALUE), because only mount programs act on it or because it would change
// the meaning of the mount call.
func ForPrograms(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return strings.HasPrefix(strings.ToLower(name), "x-") || forPrograms[name]
}

// Unknown reports whether the kernel refuses to mount a filesystem of the type
// with the option. It knows the option errors, which only ext4 supports.
func Unknown(fstype, option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return name == "errors" && fstype != "ext4"
}

// overruled returns the mount option that the host uses instead of an option
// that would let a machine act on the host, e.g. nosuid instead of suid. It
// returns "" for other options.
func overruled(fstype, option string) string {
	switch name, _, _ := strings.Cut(option, "="); {
	case option == "suid":
		return "nosuid"
	case option == "dev":
		return "nodev"
	case name == "errors" && option != onError && fstype == "ext4":
		return onError
	}
	return ""
}

// onError makes an ext4 filesystem read-only after an error.
const onError = "errors=remount-ro"

// Warning returns a text that names those options of a filesystem that the host
// overrules, or "" if there are none.
func Warning(fstype string, options []string) string {
	var by, of []string
	for _, o := range options {
		if b := overruled(fstype, o); b != "" {
			by, of = append(by, b), append(of, o)
		}
	}
	if len(of) == 0 {
		return ""
	}
	return "mount-options: the host mounts it with " + strings.Join(by, ", ") + " in place of " + strings.Join(of, ", ") + "; remove " + strings.Join(of, ", ")
}

var forPrograms = map[string]bool{
	"loop": true, "offset": true, "sizelimit": true, "bind": true, "rbind": true, "remount": true, "move": true,
	"user": true, "users": true, "owner": true, "group": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true, "comment": true,
}
