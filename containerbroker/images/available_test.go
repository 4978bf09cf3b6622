package images_test

import (
	"strings"
	"testing"

	"hostler/containerbroker/images"
)

// A plan shows the same error for an unavailable image as fetching it would,
// with the nearest name, and without the network.
func TestCheckAvailableFailsLikeAFetch(t *testing.T) {
	path, sum := imageFile(t)
	c := open(t, nil)
	if _, err := c.Import(t.Context(), path, "mine/1", sum, nil); err != nil {
		t.Fatal(err)
	}
	own := []string{"ours", "web/3"}
	for _, good := range []string{"debian/12", "mine/1", "web/3", "lxd:ours", "file:" + path + "#sha256=" + sum, "https://example.org/x#sha256=" + sum} {
		if err := c.CheckAvailable(good, images.FormatLXD, own); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for ref, want := range map[string]string{
		"debain/12":                       `no image "debain/12" on this host (cache, LXD aliases), and hostler can build only debian/11, debian/12, debian/13, busybox/1; did you mean debian/12?`,
		"mine/2":                          "did you mean mine/1?",
		"plan9/4":                         "debian/13, busybox/1",
		"lxd:our":                         "did you mean ours?",
		"file:/no/such#sha256=" + sum:     "there is no file /no/such",
		"simplestreams:nowhere/debian/12": "no server of that name",
	} {
		if err := c.CheckAvailable(ref, images.FormatLXD, own); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", ref, err, want)
		}
	}
	if err := c.CheckAvailable("busybox/1", images.FormatDisk, nil); err == nil || strings.Contains(err.Error(), "LXD") {
		t.Errorf("a disk of busybox: %v", err)
	}
	_, err := c.Ensure(t.Context(), "debain/12", images.FormatLXD, nil)
	if err == nil || !strings.Contains(err.Error(), "did you mean debian/12?") {
		t.Errorf("fetching says less than the plan: %v", err)
	}
}
