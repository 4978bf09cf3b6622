package agent

import (
	"fmt"
	"strings"
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker/images"
)

// What a declaration may name as an image, the image sources can read, and the
// other way round.
func TestImageGrammarsAgree(t *testing.T) {
	digest := "#sha256=" + strings.Repeat("0a", 32)
	for ref, good := range map[string]bool{
		"debian/12": true, "debian/12/cloud": true, "busybox/1": true, "a.b-c/1.2-3/x.y": true,
		"debian": false, "debian/": false, "debian//cloud": false, "debian/12/": false, "debian/12/a/b": false, "Debian/12": false, "debian/12/Cloud": false, "/12": false,
		"lxd:tiny": true, "lxd:My/alias:1": true, "lxd:": false, "lxd:-x": false,
		"simplestreams:images/debian/12": true, "simplestreams:images/": false, "simplestreams:images": false, "simplestreams:/debian": false,
		"file:/a/b.tar" + digest: true, "file:/a/b.tar": false, "file:a.tar" + digest: false, "file:/a/../b" + digest: false, "file:/" + digest: false,
		"https://h.example/a" + digest: true, "https://h.example/" + digest: false, "https://u@h.example/a" + digest: false, "http://h.example/a" + digest: false,
	} {
		yaml := fmt.Sprintf("version: 1\nmachines: {a: {type: lxd, image: %q}}\n", ref)
		_, declared := spec.Parse("x.yaml", []byte(yaml))
		_, read := images.ParseRef(ref)
		if (declared == nil) != good || (read == nil) != good {
			t.Errorf("%s: a declaration says %v, the sources say %v", ref, declared, read)
		}
	}
}
