package agent

import (
	"bytes"
	"context"
	"testing"
	"time"

	"hostler/agent/api"
	"hostler/agent/client/frames"
	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/brokertest"
)

// The first and the later sizes of a command's terminal reach the hypervisor.
func TestTerminalSizesReachTheHypervisor(t *testing.T) {
	l := newLossyHost(t)
	l.open()
	defer l.close()
	l.lxd.Add(containerbroker.Instance{Name: "web", Status: containerbroker.StatusRunning})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g := l.guests()
	sizes := make(chan frames.WindowSize, 1)
	sizes <- frames.WindowSize{Width: 132, Height: 43}
	close(sizes) // as the server does when the client has disconnected
	var out bytes.Buffer
	_, err := g.Exec(ctx, spec.LXD, "web", api.GuestExec{
		Command: []string{"/bin/sh", "-c", brokertest.TerminalScript}, Stdout: &out,
		Terminal: true, Width: 100, Height: 30, Resize: sizes,
	})
	if err != nil || out.String() != "30 100\r\n43 132\r\n" {
		t.Errorf("%q, %v", &out, err)
	}
}
