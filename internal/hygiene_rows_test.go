//go:build !race

package internal_test

import (
	"slices"
	"strings"
	"testing"
)

// drivers are the packages that only agent may import.
var drivers = []string{
	"containerbroker/lxd", "containerbroker/kvm", "containerbroker/lxc",
	"initialisers/lxd", "initialisers/kvm", "initialisers/lxc",
	"storage/loop", "storage/tmpfs", "storage/rootfs", "storage/managedfs",
}

// leaves are the families of the second row, and the other families that each
// may import.
var leaves = map[string][]string{
	"sysctl": nil, "packaging": nil, "hostnet": nil, "storage": nil,
	"initialisers":    {"packaging", "sysctl"},
	"containerbroker": nil,
}

// fences name the packages that may import a module or package.
var fences = []struct {
	pkg   string
	homes func(importer string) bool
}{
	// The client of LXD's library links OpenID, SFTP and templates; internal/lxd/rest replaces it.
	{"github.com/canonical/lxd/client", func(string) bool { return false }},
	{"github.com/canonical/lxd", func(p string) bool { return strings.Contains(p+"/", "/lxd/") }},
	{"github.com/digitalocean/go-libvirt", func(p string) bool { return strings.Contains(p+"/", "/kvm/") }},
	{"github.com/vishvananda/netlink", func(p string) bool { return within(p, "hostnet") }},
	{"github.com/coreos/go-systemd", func(p string) bool { return p == "agent" || p == "agent/logging" || p == "internal/units" }},
	{"github.com/godbus/dbus", func(p string) bool { return p == "internal/units" }},
	{"modernc.org/sqlite", func(p string) bool { return p == "agent/state" }},
	{"database/sql", func(p string) bool { return p == "agent/state" }},
	{"github.com/juju/fslock", func(p string) bool { return p == "internal/hostlock" }},
	{"github.com/landlock-lsm/go-landlock", func(p string) bool { return p == "containerbroker/images" }},
	{"os/exec", func(p string) bool { return p == "internal/run" }},
}

// A package imports only lower rows. Tests may import more, but must respect
// the fences. The black-box tests under tests/ share no code and are exempt.
func TestImportRows(t *testing.T) {
	for _, f := range sources(t) {
		importer := f.folder()
		if within(importer, "tests") {
			continue
		}
		for _, imported := range f.imports() {
			for _, fence := range fences {
				exec := fence.pkg == "os/exec" && f.test
				if within(imported, fence.pkg) && !fence.homes(importer) && !exec {
					t.Errorf("%s imports %s, which has its home elsewhere", f.name, imported)
				}
			}
			own, ok := strings.CutPrefix(imported, "hostler/")
			if !ok || f.test {
				continue
			}
			if why := mayImport(importer, own); why != "" {
				t.Errorf("%s imports %s: %s", f.name, imported, why)
			}
		}
	}
}

// purePackages are the only packages from outside that agent/declare imports:
// without the rest it reads no clock, file or socket, and waits for nothing.
var purePackages = []string{"bytes", "cmp", "encoding/json", "fmt", "maps", "path/filepath", "slices", "strings", "hostler/internal/fault", "hostler/internal/plan"}

func TestDeclareIsPure(t *testing.T) {
	for _, f := range sources(t) {
		if f.folder() != "agent/declare" || f.test {
			continue
		}
		for _, imported := range f.imports() {
			if !within(imported, "hostler/agent") && !slices.Contains(purePackages, imported) {
				t.Errorf("%s imports %s", f.name, imported)
			}
		}
		if strings.Contains(f.text, "state.Open(") || strings.Contains(f.text, "state.Backend") {
			t.Errorf("%s holds a store", f.name)
		}
	}
}

// mayImport returns the reason why a package of this module may not import
// another, "" if it may.
func mayImport(importer, imported string) string {
	if within(imported, "internal") || within(imported, importer) || within(importer, "cmd/hostlerd") {
		return ""
	}
	if imported == "agent" || within(imported, "cmd/hostlerd") || within(imported, "tests") || within(imported, "cmd") && !within(importer, "cmd") {
		return "nothing imports the highest rows"
	}
	for _, d := range drivers {
		if within(imported, d) && importer != "agent" && !within(importer, d) {
			return "only agent names concrete drivers"
		}
	}
	family, _, _ := strings.Cut(importer, "/")
	importedFamily, _, _ := strings.Cut(imported, "/")
	switch {
	case within(importer, "internal"):
		return "internal is the lowest row"
	case importer == "agent":
		return ""
	case within(importer, "cmd/hostler"):
		if within(imported, "agent/client") || within(imported, "agent/spec") || within(imported, "cmd/hostler") {
			return ""
		}
		return "the command line imports the API's client and the spec"
	case family != "agent":
		also, known := leaves[family]
		switch {
		case !known:
			return "the folder " + family + " is in no row"
		case importedFamily == family || contains(also, importedFamily):
			return ""
		}
		return "a leaf imports no other family, no spec and no store"
	}
	return mayWorkerImport(importer, imported, importedFamily)
}

func mayWorkerImport(importer, imported, importedFamily string) string {
	contract := within(imported, "agent/spec") || within(imported, "agent/state")
	switch {
	case within(importer, "agent/client"):
		if within(imported, "agent/client") || within(imported, "agent/spec") {
			return ""
		}
		return "the client imports only the spec"
	case within(importer, "agent/workerapi"):
		if within(imported, "agent/workerapi") || within(imported, "agent/client") || contract || imported == "agent/reconcile" || imported == "agent/api/raw" {
			return ""
		}
		return "the workers' store imports the server's helpers for handlers only"
	case within(importer, "agent/recovery") && (imported == "agent/declare" || imported == "agent/provisioner" || imported == "agent/storageprovisioner"):
		return ""
	case within(importer, "agent/declare"):
		if within(imported, "agent/spec") || imported == "agent/state" {
			return ""
		}
		return "the decisions on documents import the declared types and the store's"
	case within(importer, "agent/api") && (within(imported, "agent/client") || within(imported, "agent/workerapi") || imported == "agent/declare"):
		return ""
	case within(importer, "agent/conffiles") && imported == "agent/declare":
		return ""
	case within(importer, "agent/services"):
		if own := strings.Join(strings.Split(importer, "/")[:3], "/"); !within(imported, "agent/services") || within(imported, own) {
			return ""
		}
		return "services do not import each other"
	case within(importer, "agent/spec"), within(importer, "agent/state"):
		if root := strings.Join(strings.Split(importer, "/")[:2], "/"); within(imported, root) {
			return ""
		}
		return "the declared and the kept import only internal"
	case within(importer, "agent/reconcile"):
		if contract {
			return ""
		}
		return "the frame of workers imports only the spec and the store"
	case importedFamily != "agent", contract, within(imported, "agent/reconcile"):
		return ""
	}
	if root := strings.Join(strings.Split(importer, "/")[:2], "/"); within(imported, root) {
		return ""
	}
	return "workers do not import each other"
}

// clientLibraries are the modules that the command line may link. Others make
// the binary large and its start slow, e.g. SQLite, Prometheus and the clients
// of the hypervisors.
var clientLibraries = []string{
	"github.com/spf13/cobra", "github.com/spf13/pflag", "go.yaml.in/yaml/v3",
	"golang.org/x/sys", "golang.org/x/term", "golang.org/x/text",
}

// The command line links no library of the agent, directly or through a package
// of this module, nor text/template, with which the linker keeps every exported
// method. Cobra links it for programs that set a template.
func TestCommandLineLinks(t *testing.T) {
	imports := map[string][]string{}
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		imports[f.folder()] = append(imports[f.folder()], f.imports()...)
		if within(f.folder(), "cmd/hostler") && strings.Contains(f.text, "Template(") {
			t.Errorf("%s sets a template, which links text/template", f.name)
		}
	}
	seen := map[string]bool{"cmd/hostler": true}
	for queue := []string{"cmd/hostler"}; len(queue) > 0; queue = queue[1:] {
		for _, imported := range imports[queue[0]] {
			own, ok := strings.CutPrefix(imported, "hostler/")
			switch {
			case ok && !seen[own]:
				seen[own] = true
				queue = append(queue, own)
			case ok, slices.ContainsFunc(clientLibraries, func(l string) bool { return within(imported, l) }):
			case strings.Contains(strings.Split(imported, "/")[0], "."), imported == "database/sql", imported == "text/template":
				t.Errorf("%s imports %s, which the command line may not link", queue[0], imported)
			}
		}
	}
	for _, p := range []string{"agent/client", "agent/spec", "cmd/hostler/cli"} {
		if !seen[p] {
			t.Errorf("the command line does not link %s: this test follows the wrong imports", p)
		}
	}
}

// Examples for the rule above.
func TestMayImport(t *testing.T) {
	for _, c := range []struct {
		importer, imported string
		may                bool
	}{
		{"internal/run", "internal/paths", true},
		{"internal/run", "agent/spec", false},
		{"containerbroker/lxd", "containerbroker", true},
		{"containerbroker/lxd", "containerbroker/images", true},
		{"containerbroker/lxd", "containerbroker/kvm", false},
		{"containerbroker/lxd", "agent/spec", false},
		{"containerbroker", "sysctl", false},
		{"initialisers/lxd", "packaging", true},
		{"initialisers/lxd", "containerbroker", false},
		{"agent/spec", "internal/fault", true},
		{"agent/spec", "agent/state", false},
		{"agent/state/statetest", "agent/state", true},
		{"agent/reconcile", "agent/state", true},
		{"agent/reconcile", "agent/spec", true},
		{"agent/reconcile", "agent/client", false},
		{"agent/reconcile", "hostnet", false},
		{"agent/provisioner", "containerbroker", true},
		{"agent/provisioner", "containerbroker/lxd", false},
		{"agent/provisioner", "agent/api", false},
		{"agent/provisioner", "agent/reconcile", true},
		{"agent/provisioner", "agent", false},
		{"agent", "containerbroker/lxd", true},
		{"agent", "agent/provisioner", true},
		{"agent/api", "agent/client", true},
		{"agent/api", "agent/workerapi", true},
		{"agent/workerapi", "agent/api/raw", true},
		{"agent/workerapi", "agent/api", false},
		{"agent/workerapi", "storage", false},
		{"agent/provisioner", "agent/workerapi", false},
		{"agent/recovery", "agent/provisioner", true},
		{"agent/recovery", "agent/declare", true},
		{"agent/recovery", "agent/api", false},
		{"agent/provisioner", "agent/recovery", false},
		{"agent/conffiles", "agent/api", false},
		{"agent/conffiles", "agent/declare", true},
		{"agent/api", "agent/declare", true},
		{"agent/declare", "agent/spec/documents", true},
		{"agent/declare", "agent/state", true},
		{"agent/declare", "agent/client", false},
		{"agent/declare", "storage", false},
		{"agent/provisioner", "agent/declare", false},
		{"agent/api", "agent/conffiles", false},
		{"agent/provisioner", "agent/client", false},
		{"agent/client", "agent/client/frames", true},
		{"agent/client", "agent/spec", true},
		{"agent/client", "agent/state", false},
		{"agent/client", "storage", false},
		{"cmd/hostler", "agent/client", true},
		{"cmd/hostler", "agent/api", false},
		{"cmd/hostler", "agent/state", false},
		{"cmd/hostler", "agent", false},
		{"cmd/hostler/internal/table", "agent/client", true},
		{"cmd/hostler", "cmd/hostler/internal/table", true},
		{"agent/api", "cmd/hostler/internal/table", false},
		{"cmd/hostler", "containerbroker", false},
		{"cmd/hostlerd", "agent", true},
	} {
		if got := mayImport(c.importer, c.imported); (got == "") != c.may {
			t.Errorf("%s imports %s: %q, want may = %v", c.importer, c.imported, got, c.may)
		}
	}
}
