//go:build integration

package kvm_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"hostler/containerbroker"
)

// Output that is longer than the guest's agent and libvirt pass on in one
// answer arrives complete and leaves no files in the guest; a cancelled command
// leaves none either.
func TestLongOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.broker("hostler")
	m := r.machine(d, "talker")
	must(t, d.Create(t.Context(), m, nil))
	t.Cleanup(func() { must(t, d.Delete(context.WithoutCancel(t.Context()), m.Name, m.Stamp)) })
	must(t, d.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	exec := func(script string) (string, string, int) {
		t.Helper()
		var out, complaints bytes.Buffer
		code, err := d.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"sh", "-c", script}, Stdout: &out, Stderr: &complaints})
		must(t, err)
		return out.String(), complaints.String(), code
	}

	sum, _, _ := exec("seq 1 600000 | sha256sum")
	out, complaints, code := exec("seq 1 600000; seq 1 200000 >&2; exit 3")
	if fmt.Sprintf("%x", sha256.Sum256([]byte(out))) != strings.Fields(sum)[0] || len(out) < 4_000_000 || code != 3 {
		t.Errorf("%d bytes of output, exit code %d", len(out), code)
	}
	if !strings.HasPrefix(complaints, "1\n2\n") || !strings.HasSuffix(complaints, "\n200000\n") || strings.Count(complaints, "\n") != 200000 {
		t.Errorf("%d bytes of errors", len(complaints))
	}

	ctx, cancel := context.WithCancel(t.Context())
	told := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	if _, err := d.Exec(ctx, m.Name, containerbroker.ExecRequest{Command: []string{"seq", "1", "600000"}, Stdout: told}); err == nil {
		t.Error("what was cancelled went well")
	}
	if left, _, _ := exec("ls /tmp"); strings.Count(left, "hostler-exec.") != 1 {
		t.Errorf("left in the guest besides its own: %s", left)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
