//go:build integration

package crash_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"hostler/tests/harness"
)

// The keys under which instances bear their stamps.
const (
	stampNamespace = "user.hostler.namespace"
	stampUID       = "user.hostler.uid"
	stampToken     = "user.hostler.token"
)

// guest is one instance as its daemon and the kernel tell it.
type guest struct {
	UID, Token string
	Running    bool
	PID        int
	// Started tells one process from another that has its PID: the kernel's
	// clock ticks from boot to the start of the init.
	Started string
	Memory  string // limits.memory
}

// guests lists the instances that bear a stamp of the world's namespace.
func (w *world) guests() (map[string]guest, error) {
	var list []struct {
		Name   string            `json:"name"`
		Status string            `json:"status"`
		Config map[string]string `json:"config"`
		State  struct {
			PID int `json:"pid"`
		} `json:"state"`
	}
	if err := w.lxd.API("GET", "/1.0/instances?recursion=2", nil, &list); err != nil {
		return nil, err
	}
	found := map[string]guest{}
	for _, i := range list {
		if i.Config[stampNamespace] != w.namespace {
			continue
		}
		g := guest{UID: i.Config[stampUID], Token: i.Config[stampToken], Running: i.Status == "Running", Memory: i.Config["limits.memory"]}
		if i.State.PID > 0 {
			g.PID, g.Started = i.State.PID, startOf(i.State.PID)
		}
		found[i.Name] = g
	}
	return found, nil
}

// startOf reads the start time out of /proc/PID/stat: the 20th field after
// the command, which is in parentheses.
func startOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	if fields := strings.Fields(rest); len(fields) > 19 {
		return fields[19]
	}
	return ""
}

// machine is what the agent says of one machine.
type machine struct {
	Name, Status, UID, Message, Life string
}

func (w *world) machines() (map[string]machine, error) {
	out, err := w.try("get", "machines", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list []machine
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	found := map[string]machine{}
	for _, m := range list {
		found[m.Name] = m
	}
	return found, nil
}

// converge waits until exactly the machines of these files run, each as one
// instance with its own stamp, and nothing is left to do; then everything
// that was running before and is still declared must be untouched. It returns
// the guests.
func (w *world) converge(before map[string]guest, files ...declaration) map[string]guest {
	w.Helper()
	var after map[string]guest
	harness.Wait(w, "convergence", patience, func() (err error) {
		w.meddle()
		after, err = w.look(files)
		if err != nil {
			w.revive()
		}
		return err
	})
	if !w.revived.IsZero() {
		w.slowest = max(w.slowest, time.Since(w.revived))
		w.revived = time.Time{}
	}
	w.untouched(before, after)
	return after
}

// look says what is still missing.
func (w *world) look(files []declaration) (map[string]guest, error) {
	want := []string{}
	for _, f := range files {
		want = append(want, f.machines()...)
	}
	slices.Sort(want)
	known, err := w.machines()
	if err != nil {
		return nil, err
	}
	if got := sorted(known); !slices.Equal(got, want) {
		return nil, fmt.Errorf("the agent has the machines %v, not %v", got, want)
	}
	there, err := w.guests()
	if err != nil {
		return nil, err
	}
	if got := sorted(there); !slices.Equal(got, want) {
		return nil, fmt.Errorf("the daemon has the instances %v, not %v", got, want)
	}
	tokens := map[string]string{}
	for name, g := range there {
		m := known[name]
		if m.Status != "running" || !g.Running || g.PID == 0 || g.Started == "" {
			return nil, fmt.Errorf("%s: %s, %s; the instance: %+v", name, m.Status, m.Message, g)
		}
		if g.UID != m.UID || g.Token == "" || tokens[g.Token] != "" {
			return nil, fmt.Errorf("%s has the uid %s and the stamp %+v, the token also being that of %q", name, m.UID, g, tokens[g.Token])
		}
		tokens[g.Token] = name
	}
	if len(files) == 0 {
		return there, nil
	}
	args := []string{"plan"}
	for _, f := range files {
		args = append(args, "-f", f.path)
	}
	if out, err := w.try(args...); err != nil {
		return nil, fmt.Errorf("the plan is not empty: %s %w", out, err)
	}
	return there, nil
}

// untouched compares the processes of guests that were running.
func (w *world) untouched(before, after map[string]guest) {
	w.Helper()
	for name, b := range before {
		if a, still := after[name]; still && b.Running && (a.PID != b.PID || a.Started != b.Started || a.UID != b.UID || a.Token != b.Token) {
			w.Errorf("%s was %+v and is %+v", name, b, a)
		}
	}
}

// volumes checks that the daemon keeps no container's files but those of instances.
func (w *world) volumes() {
	w.Helper()
	var instances, volumes []string
	if err := w.lxd.API("GET", "/1.0/instances", nil, &instances); err != nil {
		w.Fatal(err)
	}
	if err := w.lxd.API("GET", "/1.0/storage-pools/"+w.lxd.Pool+"/volumes/container", nil, &volumes); err != nil {
		w.Fatal(err)
	}
	if len(instances) != len(volumes) {
		w.Errorf("instances %v, volumes %v", instances, volumes)
	}
}

// sweep deletes what bears the namespace's stamp.
func (w *world) sweep() {
	w.Helper()
	there, err := w.guests()
	if err != nil {
		w.Errorf("cannot list instances: %v", err)
	}
	for name := range there {
		w.remove(name)
	}
}

func (w *world) remove(name string) {
	w.Helper()
	_ = w.lxd.API("PUT", "/1.0/instances/"+name+"/state", map[string]any{"action": "stop", "force": true, "timeout": -1}, nil)
	if err := w.lxd.API("DELETE", "/1.0/instances/"+name, nil, nil); err != nil {
		w.Errorf("cannot delete %s: %v", name, err)
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// declaration is a file of machines, each with its memory in MiB.
type declaration struct {
	path   string
	memory map[string]int
}

func (d declaration) machines() []string { return sorted(d.memory) }

// declare writes a declaration; nothing is applied.
func (w *world) declare(name string, memory map[string]int) declaration {
	w.Helper()
	text := "version: 1\nmachines:\n"
	if len(memory) == 0 {
		text = "version: 1\nmachines: {}\n"
	}
	for _, m := range sorted(memory) {
		text += fmt.Sprintf("  %s: {type: %s, image: busybox/1, memory: %dMiB}\n", m, w.daemon().Name, memory[m])
	}
	return declaration{w.write(name+".yaml", text), memory}
}
