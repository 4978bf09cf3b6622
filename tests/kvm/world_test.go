//go:build integration

package kvm

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hostler/containerbroker/kvm/kvmtest"
	"hostler/tests/behaviour"
	"hostler/tests/harness"
)

// KVM machines pass the suite that every container type passes.
func TestBehaviour(t *testing.T) {
	behaviour.Run(t, func(t *testing.T) behaviour.World { return open(t) })
}

// world is a private libvirt with an agent behind a proxy.
type world struct {
	t     *testing.T
	s     *kvmtest.Server
	p     *kvmtest.Proxy
	a     *harness.Agent
	image string
	dir   string
}

func open(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, image: kvmtest.TinyReference(t), s: kvmtest.Start(t), dir: t.TempDir()}
	w.p = kvmtest.NewProxy(t, w.s.Socket)
	w.a = harness.NewAgent(t, t.TempDir())
	w.a.Prefix = w.s.Behind(w.p)
	w.Configure("")
	return w
}

func (w *world) Type() string          { return "kvm" }
func (w *world) Agent() *harness.Agent { return w.a }
func (w *world) Image() string         { return w.image }
func (w *world) Another() string       { return w.copied("another.raw") }
func (w *world) Greeting() string      { return "TINY-READY" }
func (w *world) PID() int              { return w.s.PID() }
func (w *world) Names() []string       { return w.s.Names() }
func (w *world) Left() []string        { return w.s.Files() }

func (w *world) Configure(more string) {
	w.a.Configure("namespace: test\nretry-delay: 1s\nstart-retries: 2\ntypes: {kvm: {accelerator: tcg}}\n" + more)
}

// copied makes the tiny disk a raw one, once, and returns it as a declaration
// names it: the same guest from another image.
func (w *world) copied(name string) string {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if _, err := os.Stat(file); err != nil {
		harness.Run(w.t, "qemu-img", "convert", "-O", "raw", kvmtest.Tiny(w.t), file)
	}
	return reference(w.t, file)
}

func reference(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("file:%s#sha256=%x", file, sha256.Sum256(data))
}

// Later is an image whose file stands elsewhere until Supply.
func (w *world) Later() string {
	w.t.Helper()
	text := w.copied("later.raw")
	w.rename("later.raw", "elsewhere")
	return text
}

func (w *world) Supply() { w.rename("elsewhere", "later.raw") }

func (w *world) rename(from, to string) {
	w.t.Helper()
	if err := os.Rename(filepath.Join(w.dir, from), filepath.Join(w.dir, to)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Live() behaviour.Change {
	return behaviour.Change{From: ", cpus: 1, memory: 768MiB", To: ", cpus: 2, memory: 512MiB", Made: w.has("2", "524288")}
}

func (w *world) Restart() behaviour.Change {
	return behaviour.Change{From: ", cpus: 2, memory: 512MiB", To: ", cpus: 2, memory: 1GiB", Made: w.has("2", "1048576")}
}

// has returns what compares a running guest's processors and its memory in KiB.
func (w *world) has(cpus, memory string) func(string) error {
	return func(name string) error {
		now := strings.TrimSpace(w.s.Virsh("vcpucount", name, "--current", "--live"))
		balloon := stat.FindStringSubmatch(w.s.Virsh("dommemstat", name))
		if now != cpus || balloon == nil || balloon[1] != memory {
			return fmt.Errorf("%s has %s processors and %q KiB, not %s and %s", name, now, balloon, cpus, memory)
		}
		return nil
	}
}

var (
	stat  = regexp.MustCompile(`(?m)^actual (\d+)$`)
	stamp = regexp.MustCompile(`(?s)<[a-z]*:?instance [^>]*?xmlns[^>]*>(?:.*?</[a-z]*:?instance>)?\s*`)
	uid   = regexp.MustCompile(`\buid=['"]([^'"]*)`)
	token = regexp.MustCompile(`\btoken=['"]([^'"]*)`)
	seed  = regexp.MustCompile(`<source file='([^']*seed-[^']*)'`)
)

func (w *world) Look(name string) behaviour.Instance {
	w.t.Helper()
	text := w.s.Virsh("dumpxml", "--inactive", name)
	first := func(r *regexp.Regexp, in string) string {
		if found := r.FindStringSubmatch(in); found != nil {
			return found[1]
		}
		return ""
	}
	note := stamp.FindString(text)
	i := behaviour.Instance{UID: first(uid, note), Making: first(token, note), Definition: text, Process: w.s.Process(name)}
	if file := first(seed, text); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			w.t.Fatal(err)
		}
		i.Told = string(data)
	}
	return i
}

func (w *world) Make(name, namespace string, run bool) {
	w.t.Helper()
	note := ""
	if namespace != "" {
		note = fmt.Sprintf("<metadata><h:instance xmlns:h='https://hostler.invalid/libvirt/1' namespace='%s' uid='uid-of-%s' token='x'/></metadata>", namespace, name)
	}
	w.s.Define("define", fmt.Sprintf("<domain type='qemu'><name>%s</name>%s<memory unit='MiB'>512</memory><os><type>hvm</type></os></domain>", name, note))
	if run {
		w.s.Virsh("start", name)
	}
}

var faults = map[string]kvmtest.Fault{
	"a lost answer": kvmtest.Lose, "half an answer": kvmtest.Truncate, "garbage": kvmtest.Garbage, "an answer of 4 GiB": kvmtest.Oversize, "an answer of 5 bytes": kvmtest.Undersize,
}

func (w *world) Faults() []string { return slices.Sorted(maps.Keys(faults)) }

func (w *world) Break(fault string) {
	w.p.Break(kvmtest.ProcAllStats, faults[fault])
	w.p.Cut()
}

func (w *world) Hang() {
	w.p.Break(kvmtest.ProcAllStats, kvmtest.Hang)
	w.p.Break(kvmtest.ProcGetVersion, kvmtest.Hang)
	w.p.Break(kvmtest.ProcOpen, kvmtest.Hang)
}

// Heal has the connections opened again, which causes a full listing.
func (w *world) Heal() {
	w.p.Heal()
	w.p.Cut()
}

func (w *world) Forget()        { w.p.Calls() }
func (w *world) Listings() int  { return w.p.Count(kvmtest.ProcAllStats) }
func (w *world) Mutations() int { return w.p.Mutations() }
