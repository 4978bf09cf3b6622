package brokertest

import (
	"errors"
	"testing"

	"hostler/containerbroker"
)

func machine(f *Fake, name string) containerbroker.Machine {
	return containerbroker.Machine{
		Name: name, ImageID: f.AddImage("tiny", true), Properties: containerbroker.Properties{CPUs: 1},
		Stamp: containerbroker.Stamp{Namespace: "hostler", UID: "uid-" + name, Token: "token-" + name, Record: "{}"},
	}
}

func TestFaultsHitTheirCalls(t *testing.T) {
	f := New()
	boom := errors.New("boom")
	m := machine(f, "web")

	f.Fail(Create, "web", 1, boom)
	if err := f.Create(t.Context(), m, nil); !errors.Is(err, boom) {
		t.Fatalf("first create: %v", err)
	}
	if names := f.Names(); len(names) != 0 {
		t.Fatalf("a failed create left %v", names)
	}
	f.LoseReplies(Create, "", 1, boom)
	if err := f.Create(t.Context(), m, nil); !errors.Is(err, boom) {
		t.Fatalf("lost reply: %v", err)
	}
	if err := f.Create(t.Context(), m, nil); err != nil {
		t.Fatalf("create again with the same token: %v", err)
	}
	if n := f.Calls(Create); n != 3 {
		t.Fatalf("%d creates counted", n)
	}
	if ops := f.Operations(); len(ops) != 1 || ops[0] != "create web" {
		t.Fatalf("operations: %q", ops)
	}

	f.Hide("web")
	if all, err := f.List(t.Context(), false); err != nil || len(all) != 0 {
		t.Fatalf("hidden instance listed: %v, %v", all, err)
	}
	f.Heal()
	if all, err := f.List(t.Context(), false); err != nil || len(all) != 1 {
		t.Fatalf("after healing: %v, %v", all, err)
	}
}

func TestBlockHoldsUntilReleased(t *testing.T) {
	f := New()
	m := machine(f, "web")
	release := f.Block(Create, "web")
	done := make(chan error, 1)
	go func() { done <- f.Create(t.Context(), m, nil) }()
	for f.Calls(Create) == 0 {
		select {
		case err := <-done:
			t.Fatalf("a blocked create returned: %v", err)
		default:
		}
	}
	if len(f.Names()) != 0 {
		t.Fatal("a blocked create did its work")
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := f.String(); got == "" {
		t.Fatal("the fake does not print itself")
	}
}
