package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"regexp"
	"strings"

	"hostler/agent/spec"
	"hostler/internal/hostlock"
)

// facts returns the facts about the kernel that a provisioner needs. A
// provisioner in a separate unit cannot read them, due to ProcSubset=pid.
func facts() spec.HostFacts { return spec.HostFacts{Boot: hostlock.BootID()} }

// machineID is the form of a machine-id (machine-id(5)). The file of an image
// for several hosts is empty or says uninitialized.
var machineID = regexp.MustCompile("^[0-9a-f]{32}$")

// machineDigest returns a digest of the machine-id in the file, or "" if the
// file has none. machine-id(5) asks programs to store no machine-id as it is.
func machineDigest(path string) string {
	data, err := os.ReadFile(path)
	id := strings.TrimSpace(string(data))
	if err != nil || !machineID.MatchString(id) {
		return ""
	}
	sum := sha256.Sum256([]byte("hostler " + id))
	return hex.EncodeToString(sum[:16])
}
