//go:build integration

package vm_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler/tests/harness"
)

// lxcInstances prints the instances of classic LXC as LXD would. The record in a
// note has its quotes escaped, so that no key of it is taken for one of the note.
const lxcInstances = `{ comma=; printf '['; for d in /var/lib/lxc/*/; do test -d "$d" || continue
n=$(basename "$d"); set -- $(lxc-info -n "$n" -s -H) $(lxc-info -n "$n" -p -H)
note() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$d/hostler.json" 2>/dev/null; }
printf '%s{"name":"%s","status":"%s","state":{"pid":%s},"config":{"user.hostler.uid":"%s","user.hostler.token":"%s","limits.memory":"%s"}}' \
"$comma" "$n" "$1" "${2:-0}" "$(note uid)" "$(note token)" "$(sed -n 's/^lxc.cgroup2.memory.max = //p' "$d/config")"; comma=,; done; printf ']'; }`

// instances is a script that prints the instances as JSON, in LXD's form.
func (d daemon) instances() string {
	if d == classic {
		return lxcInstances
	}
	return d.client + " query '/1.0/instances?recursion=2'"
}

// list is a command that prints the instances for people.
func (d daemon) list() string {
	if d == classic {
		return "lxc-ls -f"
	}
	return d.client + " list"
}

// pool is the folder of the daemon's storage pool, aside the folder in it for
// files that belong to no instance.
func (d daemon) pool() string {
	if d == classic {
		return "/var/lib/lxc/.hostler/pool"
	}
	return "/var/lib/" + d.kind + "/storage-pools/default"
}

func (d daemon) aside() string {
	return d.pool() + map[bool]string{true: "/leftovers", false: "/hostler-aside"}[d == classic]
}

// onlyFilesOf waits until the pool has the files of these instances and no
// others.
func (m *machine) onlyFilesOf(now map[string]instance) {
	m.Helper()
	script, want := "ls "+m.base.daemon.pool()+"/containers", slices.Sorted(maps.Keys(now))
	if m.base.daemon == classic {
		// The files bear the token of the attempt that made them. No attempt and no
		// removal is left half done.
		script = "cd /var/lib/lxc/.hostler; ls pool/guests pool/privileged making | grep -v -e : -e '^$'; ls -d removed/*/config 2>/dev/null; true"
		want = nil
		for _, i := range now {
			want = append(want, i.Token)
		}
		slices.Sort(want)
	} else if volumes := m.containers(); len(volumes) != len(now) {
		m.Errorf("the daemon keeps the files %v for the instances %v", volumes, now)
	}
	// Whose files they are can only be told when the daemon is at rest.
	harness.Wait(m, "what was deleted to be out of the way", settleLimit, func() error {
		if files := strings.Fields(m.sh(script)); !slices.Equal(slices.Sorted(slices.Values(files)), want) {
			return fmt.Errorf("the pool has files of %v for the instances %v", files, now)
		}
		return nil
	})
}

// containers lists the containers' volumes in the daemon's pool.
func (m *machine) containers() (urls []string) {
	m.Helper()
	if out := m.sh(m.base.daemon.client + " query /1.0/storage-pools/default/volumes/container"); json.Unmarshal([]byte(out), &urls) != nil {
		m.Fatalf("the daemon answers %q", out)
	}
	return urls
}
