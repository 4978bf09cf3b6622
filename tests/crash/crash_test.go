//go:build integration

package crash_test

import (
	"slices"
	"testing"

	"hostler/containerbroker/lxd/lxdtest"
)

// All of it stands on one private LXD; each part has an agent of its own.
func TestOnLXD(t *testing.T) { onDaemon(t, lxdtest.LXD) }

// The same stands on one private Incus.
func TestOnIncus(t *testing.T) { onDaemon(t, lxdtest.Incus) }

func onDaemon(t *testing.T, daemon lxdtest.Daemon) {
	lxd := lxdtest.StartWith(t, lxdtest.Options{Daemon: daemon, Driver: "dir", NoImage: true})
	for _, part := range []struct {
		name string
		run  func(*testing.T, *lxdtest.Server)
		// both is whether the sample tries a share of it on Incus.
		both bool
	}{
		{"crash points", crashPoints, true},
		{"daemon killed", daemonKilled, false},
		{"agent killed", agentKilled, false},
		{"killed while asked", killedWhileAsked, false},
		{"agent frozen", agentFrozen, false},
		{"lost replies", lostReplies, true},
		{"damaged store", damagedStore, false},
		{"two agents", twoAgents, false},
		{"two namespaces", twoNamespaces, false},
		{"older state", olderState, false},
		{"one namespace", oneNamespace, false},
		{"one namespace unlocked", oneNamespaceUnlocked, false},
	} {
		if long || part.both || daemon == lxdtest.LXD {
			t.Run(part.name, func(t *testing.T) { part.run(t, lxd) })
		}
	}
}

// Every point that the agent names is in one of the campaigns.
func TestEveryPointIsTried(t *testing.T) {
	tried := map[string]bool{}
	for _, daemon := range []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus} {
		for _, c := range cells(t, daemon) {
			tried[c.point] = true
		}
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
