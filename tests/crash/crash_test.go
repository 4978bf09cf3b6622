//go:build integration

package crash_test

import (
	"slices"
	"testing"

	"hostler/containerbroker/lxd/lxdtest"
)

// All of it stands on one private LXD; each part has an agent of its own.
func TestOnLXD(t *testing.T) {
	lxd := lxdtest.StartWith(t, lxdtest.Options{Driver: "dir", NoImage: true})
	for _, part := range []struct {
		name string
		run  func(*testing.T, *lxdtest.Server)
	}{
		{"crash points", crashPoints},
		{"LXD killed", lxdKilled},
		{"agent killed", agentKilled},
		{"killed while asked", killedWhileAsked},
		{"agent frozen", agentFrozen},
		{"lost replies", lostReplies},
		{"damaged store", damagedStore},
		{"two agents", twoAgents},
		{"two namespaces", twoNamespaces},
		{"older state", olderState},
		{"one namespace", oneNamespace},
		{"one namespace unlocked", oneNamespaceUnlocked},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, lxd) })
	}
}

// Every point that the agent names is in one of the campaigns.
func TestEveryPointIsTried(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range cells(t) {
		tried[c.point] = true
	}
	for _, point := range slices.Concat(initPoints, aptPoints, kvmPoints) {
		tried[point] = true
	}
	for _, point := range elsewhere {
		tried[string(point)] = true
	}
	for _, point := range points(t) {
		if !tried[point] {
			t.Errorf("%s is in no campaign", point)
		}
		delete(tried, point)
	}
	if len(tried) > 0 {
		t.Errorf("the agent does not know %v", sorted(tried))
	}
}
