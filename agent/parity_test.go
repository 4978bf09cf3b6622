package agent

import (
	"fmt"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker/cloudinit"
	"hostler/storage/managedfs"
)

// The parser and the drivers accept the same user-data.
func TestUserDataThatIsAcceptedCanBeUsed(t *testing.T) {
	for _, text := range []string{
		"#cloud-config\n{}\n", "#cloud-config-archive\n[]\n", "#cloud-config-jsonp\n[]\n", "#cloud-boothook\ntrue\n", "#part-handler\npass\n",
		"#include\nhttps://example.org/a\n", "#include-once\nhttps://example.org/a\n", "#INCLUDE\nhttps://example.org/a\n", "#!/bin/sh\n",
		"## template: jinja\n#cloud-config\n{}\n", "## Template: jinja\n", "#upstart-job\n", "From me\n", "nothing\n", "# cloud-config\n",
		"Content-Type: multipart/mixed; boundary=x\n\n--x--\n", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x--\n",
		"Content-Type: multipart/mixed\n\n", "Content-Type: text/x-shellscript\n\n#!/bin/sh\n", "MIME-Version 1.0\n", "MIME-Version: 1.0\nnonsense\n",
		"#cloud-config\n# " + strings.Repeat("\u00e4", 32_700) + "\n",
	} {
		document := fmt.Sprintf("version: 1\nmachines: {web: {type: lxd, image: debian/12, cloud-init: {user-data: %q}}}\n", text)
		_, declared := spec.Parse("site", []byte(document))
		_, used := cloudinit.UserData(cloudinit.Input{Hostname: "web", UserData: text})
		if (declared == nil) != (used == nil) {
			t.Errorf("%.40q: declared: %v; used: %v", text, declared, used)
		}
	}
}

// A volume that the parser accepts for a filesystem type is large enough for
// it.
func TestVolumesThatAreAcceptedCanHoldTheirFilesystem(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		if declared, needed := int64(spec.LeastOn(kind)), managedfs.Least(kind); declared != needed || needed == 0 {
			t.Errorf("%s: %d bytes may be declared, %d are needed", kind, declared, needed)
		}
	}
}
