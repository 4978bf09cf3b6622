//go:build integration

package crash_test

import (
	"slices"
	"testing"

	"hostler/containerbroker/lxd/lxdtest"
)

// The whole campaign runs on a private LXD and on a private Incus. Each part has an
// agent of its own.
func TestOnLXD(t *testing.T) { onDaemon(t, lxdtest.LXD) }

func TestOnIncus(t *testing.T) { onDaemon(t, lxdtest.Incus) }

func onDaemon(t *testing.T, daemon lxdtest.Daemon) {
	lxd := lxdtest.StartWith(t, lxdtest.Options{Daemon: daemon, Driver: "dir", NoImage: true})
	for _, part := range []struct {
		name string
		run  func(*testing.T, *lxdtest.Server)
		// sample names the daemons on which the part runs in the sample.
		sample []lxdtest.Daemon
	}{
		{"crash points", crashPoints, []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus}},
		{"daemon killed", daemonKilled, []lxdtest.Daemon{lxdtest.LXD}},
		{"agent killed", agentKilled, []lxdtest.Daemon{lxdtest.LXD}},
		{"killed while asked", killedWhileAsked, []lxdtest.Daemon{lxdtest.LXD}},
		{"agent frozen", agentFrozen, []lxdtest.Daemon{lxdtest.LXD}},
		{"lost replies", lostReplies, []lxdtest.Daemon{lxdtest.LXD, lxdtest.Incus}},
		{"damaged store", damagedStore, []lxdtest.Daemon{lxdtest.LXD}},
		{"two agents", twoAgents, []lxdtest.Daemon{lxdtest.LXD}},
		{"two namespaces", twoNamespaces, []lxdtest.Daemon{lxdtest.Incus}},
		{"older state", olderState, []lxdtest.Daemon{lxdtest.Incus}},
		{"one namespace", oneNamespace, []lxdtest.Daemon{lxdtest.Incus}},
		{"one namespace unlocked", oneNamespaceUnlocked, []lxdtest.Daemon{lxdtest.LXD}},
	} {
		if long || slices.Contains(part.sample, daemon) {
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
	for _, point := range slices.Concat(initPoints, aptPoints, kvmPoints, lxcPoints()) {
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
