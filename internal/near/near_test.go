package near

import "testing"

func TestWord(t *testing.T) {
	for word, want := range map[string]string{
		"debain/12": "debian/12", "debian/14": "debian/11", "DEBIAN/12": "debian/12", "plan9/4": "", "busybox/2": "busybox/1", "": "",
	} {
		if got := Word(word, []string{"debian/11", "debian/12", "busybox/1"}); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
