package firewall

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"

	"hostler/internal/run"
)

// listed is an nft whose table holds the rules.
type listed Rules

func (r listed) Run(_ context.Context, c run.Command) (run.Result, error) {
	var l listing
	if slices.Contains(c.Args, "tables") {
		l.Objects = []object{{Table: &nftTable{Family: inet, Name: "hostler"}}}
	} else {
		for _, c := range table(Rules(r)) {
			for _, comment := range c.comments {
				l.Objects = append(l.Objects, object{Rule: &nftRule{Family: c.family, Table: "hostler", Chain: c.name, Comment: comment}})
			}
		}
	}
	data, err := json.Marshal(l)
	return run.Result{Stdout: data}, err
}

// The table reveals the settings of each of its networks. It reveals nothing
// about other networks or other subnets.
func TestRecall(t *testing.T) {
	for bits := range 16 {
		n := lan()
		n.Forward, n.NAT, n.Services, n.HostAccess = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
		other := Network{Owner: "u2", Bridge: "br-up", Forward: true, HostAccess: true}
		f, err := New("hostler", listed{Networks: []Network{n, other}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		moved, never := lan(), lan()
		moved.Subnets, never.Owner = prefixes("10.21.0.1/24"), "u3"
		seen, err := f.Observe(t.Context())
		got := seen.Recall([]Network{
			{Owner: "u1", Bridge: "br-lan", Subnets: n.Subnets}, moved, never, {Owner: "u2", Bridge: "br-up", Subnets: prefixes("192.0.2.10/24")},
		})
		if err != nil || len(got) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		// Settings that make no difference in the rules may differ.
		if text := fmt.Sprint(table(Rules{Networks: got})); text != fmt.Sprint(table(Rules{Networks: []Network{n, other}})) {
			t.Errorf("of %+v is known %+v", n, got[0])
		}
		if !reflect.DeepEqual(got[1], other) {
			t.Errorf("of %+v is known %+v", other, got[1])
		}
	}
}
