package brokertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler/containerbroker"
	kinds "hostler/internal/fault"
)

func (s *suite) imagesAreShared(t *testing.T) {
	store := s.Broker.(containerbroker.ImageStore)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if id, err := store.EnsureImage(t.Context(), s.Image, nil); err != nil || id != s.image {
				t.Errorf("%q, %v", id, err)
			}
		})
	}
	wait.Wait()
	_, err := store.EnsureImage(t.Context(), "lxd:conform-no-such-image", nil)
	wantKind(t, err, kinds.NotFound)
	m := s.created(t)
	all, err := store.ListImages(t.Context())
	must(t, err)
	at := slices.IndexFunc(all, func(i containerbroker.HypervisorImage) bool { return i.ID == s.image })
	if at < 0 || all[at].Size <= 0 || !slices.Contains(all[at].UsedBy, m.Name) {
		t.Errorf("images: %+v", all)
	}
	wantKind(t, store.DeleteImage(t.Context(), s.image), kinds.Conflict) // the image is in use, or it is not ours
	must(t, store.DeleteImage(t.Context(), strings.Repeat("0", 64)))
}

func (s *suite) namespaces(t *testing.T) {
	m := s.created(t)
	theirs := m.Stamp
	theirs.Namespace = s.OtherNamespace
	wantKind(t, s.Other.Delete(t.Context(), m.Name, theirs), kinds.Conflict)
	other := m
	other.Stamp = theirs
	wantKind(t, s.Other.Create(t.Context(), other, nil), kinds.Conflict)
	wantKind(t, s.Other.Update(t.Context(), other, nil), kinds.Conflict)
	if stamper, ok := s.Other.(containerbroker.Stamper); ok {
		wantKind(t, stamper.Stamp(t.Context(), m.Name, &m.Stamp, theirs), kinds.Conflict)
	}
	all, err := s.Other.List(t.Context(), false)
	must(t, err)
	for _, i := range all {
		if i.Name == m.Name && (i.Stamp == nil || *i.Stamp != m.Stamp) {
			t.Errorf("the other agent reads the stamp as %+v", i.Stamp)
		}
	}
}

func (s *suite) stamps(t *testing.T) {
	stamper := s.Broker.(containerbroker.Stamper)
	const name = "conform-adopted"
	s.AddForeign(t, name)
	stamp := containerbroker.Stamp{Namespace: s.Namespace, UID: "adopted", Token: "one", Store: "store-2 opening 1", Record: strings.Repeat("x", 48<<10)}
	for range 2 { // a caller repeats the call if the answer was lost
		must(t, stamper.Stamp(t.Context(), name, nil, stamp))
	}
	if i := s.get(t, name); i.Stamp == nil || *i.Stamp != stamp {
		t.Error("the stamp did not come back")
	}
	again := stamp
	again.UID, again.Record = "adopted again", "{}"
	must(t, stamper.Stamp(t.Context(), name, &stamp, again))
	if i := s.get(t, name); *i.Stamp != again {
		t.Errorf("the stamp is %+v", i.Stamp)
	}
	s.otherStampsStay(t, name)
	for range 2 {
		must(t, stamper.Unstamp(t.Context(), name, again))
	}
	if i := s.get(t, name); i.Stamp != nil {
		t.Errorf("the stamp is still %+v", i.Stamp)
	}
	wantKind(t, stamper.Stamp(t.Context(), name, &again, stamp), kinds.Conflict)
	wantKind(t, stamper.Stamp(t.Context(), "conform-absent", nil, stamp), kinds.NotFound)
	must(t, stamper.Unstamp(t.Context(), "conform-absent", stamp))
}

// otherStampsStay checks that a caller with an outdated stamp cannot change the
// instance.
func (s *suite) otherStampsStay(t *testing.T, name string) {
	t.Helper()
	stamper := s.Broker.(containerbroker.Stamper)
	bears := *s.get(t, name).Stamp
	mine := containerbroker.Stamp{Namespace: bears.Namespace, UID: "another", Token: "two", Record: "{}"}
	wantKind(t, stamper.Stamp(t.Context(), name, nil, mine), kinds.Conflict)
	for _, seen := range []containerbroker.Stamp{
		{Namespace: s.OtherNamespace, UID: bears.UID, Token: bears.Token},
		{Namespace: bears.Namespace, UID: "before", Token: bears.Token},
		{Namespace: bears.Namespace, UID: bears.UID, Token: "before"},
	} {
		wantKind(t, stamper.Stamp(t.Context(), name, &seen, mine), kinds.Conflict)
		wantKind(t, stamper.Unstamp(t.Context(), name, seen), kinds.Conflict)
	}
	if i := s.get(t, name); i.Stamp == nil || *i.Stamp != bears {
		t.Errorf("the stamp became %+v", i.Stamp)
	}
}

func (s *suite) events(t *testing.T) {
	source := s.Broker.(containerbroker.EventSource)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, err := source.Events(ctx)
	must(t, err)
	await := func(name, after string) {
		t.Helper()
		deadline := time.After(waitLimit)
		for {
			select {
			case event, open := <-events:
				if !open {
					t.Fatalf("the stream ended while waiting for the event after %s", after)
				}
				if event.Instance == name {
					return
				}
			case <-deadline:
				t.Fatalf("no event after %s", after)
			}
		}
	}
	m := s.created(t)
	await(m.Name, "create")
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerStart, 0))
	await(m.Name, "start")
	s.Die(t, m.Name)
	await(m.Name, "its death")
	must(t, s.Broker.Delete(t.Context(), m.Name, m.Stamp))
	await(m.Name, "delete")
	cancel()
	deadline := time.After(waitLimit)
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("the stream did not end with its context")
		}
	}
}

func (s *suite) ready(t *testing.T) {
	probe := s.Broker.(containerbroker.ReadinessProbe)
	m := s.running(t)
	found, err := probe.WaitReady(t.Context(), m, nil)
	must(t, err)
	if found.Init == "" {
		t.Errorf("ready as %+v", found)
	}
	if s.Address && (len(found.Addresses) == 0 || !slices.Equal(found.Addresses, s.get(t, m.Name).Addresses)) {
		t.Errorf("addresses %v, listed %v", found.Addresses, s.get(t, m.Name).Addresses)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := probe.WaitReady(ctx, m, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 0))
	_, err = probe.WaitReady(t.Context(), m, nil)
	wantKind(t, err, kinds.Transient)
}

func (s *suite) terminal(t *testing.T) {
	guest := s.Broker.(containerbroker.GuestAccess)
	m := s.running(t)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	r, w := io.Pipe()
	sizes := make(chan containerbroker.WindowSize, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := guest.Exec(ctx, m.Name, containerbroker.ExecRequest{
			Command:  []string{"/bin/sh", "-c", TerminalScript},
			Terminal: true, Width: 100, Height: 30, Resize: sizes, Stdout: w,
		})
		_ = w.CloseWithError(err)
		ended <- err
	}()
	said := bufio.NewReader(r)
	for _, want := range []string{"30 100", "43 132"} {
		if line, err := said.ReadString('\n'); err != nil || strings.TrimSpace(line) != want {
			t.Fatalf("it says %q, not %q: %v", line, want, err)
		}
		if want == "30 100" {
			sizes <- containerbroker.WindowSize{Width: 132, Height: 43}
		}
	}
	must(t, <-ended)
}

func (s *suite) exec(t *testing.T) {
	guest := s.Broker.(containerbroker.GuestAccess)
	m := s.running(t)
	var stdout, stderr bytes.Buffer
	code, err := guest.Exec(t.Context(), m.Name, containerbroker.ExecRequest{
		Command: []string{"/bin/sh", "-c", strings.TrimPrefix(conformanceScript, "/bin/sh -c ")},
		Stdout:  &stdout, Stderr: &stderr,
	})
	must(t, err)
	if code != 7 || stdout.String() != "to stdout\n" || stderr.String() != "to stderr\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &stdout, &stderr)
	}
	stdout.Reset()
	lines := 20_000
	if s.Virtual {
		lines = 1_000 // the input goes through a serial port in one message
	}
	input := strings.Repeat("all of it must come back\n", lines)
	code, err = guest.Exec(t.Context(), m.Name, containerbroker.ExecRequest{
		Command: []string{"cat"}, Stdin: strings.NewReader(input), Stdout: &stdout,
	})
	must(t, err)
	if code != 0 || stdout.String() != input {
		t.Errorf("exit code %d, %d of %d bytes came back", code, stdout.Len(), len(input))
	}
	code, err = guest.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"true"}})
	if err != nil || code != 0 {
		t.Errorf("without streams: %d, %v", code, err)
	}
	log, err := guest.Log(t.Context(), m.Name)
	must(t, err)
	must(t, log.Close())
	_, err = guest.Exec(t.Context(), "conform-absent", containerbroker.ExecRequest{Command: []string{"true"}})
	wantKind(t, err, kinds.NotFound)
	must(t, s.Broker.SetPower(t.Context(), m.Name, containerbroker.PowerStop, 0))
	_, err = guest.Exec(t.Context(), m.Name, containerbroker.ExecRequest{Command: []string{"true"}})
	wantKind(t, err, kinds.NotReady)
}
