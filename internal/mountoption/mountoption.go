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

// Unknown reports whether the kernel refuses to mount a filesystem of the type
// with the option: errors is known to ext4 only.
func Unknown(fstype, option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return name == "errors" && fstype != "ext4"
}

// overruled returns the mount option with which the host mounts every
// filesystem in place of an option that would let a machine act on the host,
// e.g. nosuid in place of suid; "" for other options.
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

// onError makes a damaged filesystem read-only.
const onError = "errors=remount-ro"

// Warning names the overruled options among those of a filesystem of the type,
// "" if there are none.
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
