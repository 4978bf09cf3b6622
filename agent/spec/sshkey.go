package spec

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// sshKeyTypes are the types of public keys that OpenSSH accepts.
var sshKeyTypes = []string{
	"ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
	"sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
}

// maxSSHKey is the maximum length of a key line in bytes; a 16384-bit RSA key
// has 2800.
const maxSSHKey = 8192

// sshKeys checks public keys, each a line of an authorized_keys file.
func (d *decoder) sshKeys(path string, keys []string) {
	for i, key := range keys {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !d.ok(at):
		case strings.Contains(key, "PRIVATE KEY"):
			d.bad(at, "this is a private key; keep it secret and give the public key, from the file that ends in .pub")
		case len(key) > maxSSHKey:
			d.bad(at, "the key is %d bytes long, more than the %d allowed", len(key), maxSSHKey)
		default:
			if message := sshKeyFault(key); message != "" {
				d.bad(at, "%s", message)
			}
		}
	}
}

// sshKeyFault describes the fault of a key. It returns "" if the key looks
// valid.
func sshKeyFault(key string) string {
	words := strings.Fields(key)
	for i, word := range words {
		for _, t := range sshKeyTypes {
			if word != t {
				continue
			}
			if i+1 == len(words) {
				return "the key itself is missing after " + t + "; copy the whole line of the .pub file"
			}
			blob, err := base64.StdEncoding.DecodeString(words[i+1])
			// The blob begins with the length of the type in four bytes and the type
			// itself (RFC 4253, 6.6).
			if err != nil || len(blob) < 4+len(t)+4 || binary.BigEndian.Uint32(blob) != uint32(len(t)) || string(blob[4:4+len(t)]) != t {
				return "the key after " + t + " is damaged or cut short; copy the whole line of the .pub file"
			}
			return ""
		}
	}
	return quote(key) + " is not an SSH public key; give a line like \"ssh-ed25519 AAAA… comment\""
}
