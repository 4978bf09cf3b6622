package spec

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hostler/internal/fault"
)

func TestParseMachine(t *testing.T) {
	const document = `#hostler-config
version: 1
machines:
  web:
    type: lxd
    image: debian/12
    cpus: 2
    memory: 512MiB
    root-disk: 4GiB
    running: false
    cloud-init:
      user-data: |
        #cloud-config
        packages: [nginx]
`
	d, err := Parse("site", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	no := false
	want := Declaration{Version: 1, Name: "site", Machines: map[string]Machine{"web": {
		Type: LXD, Image: "debian/12", CPUs: 2, Memory: 512 * MiB, RootDisk: 4 * GiB, Running: &no,
		CloudInit: CloudInit{UserData: "#cloud-config\npackages: [nginx]\n"},
	}}}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
	if m := d.Machines["web"]; m.WantsRunning() || !m.WantsAutostart() {
		t.Error("running: false or the default of autostart is not understood")
	}
}

func TestParseErrorsHaveKindAndPlaces(t *testing.T) {
	_, err := Parse("dir/site.yaml", []byte("version: 1\nmachine:\n  web: {}\n"))
	var errs Errors
	if !fault.Is(err, fault.Invalid) || !errors.As(err, &errs) || len(errs) != 1 {
		t.Fatalf("got %v", err)
	}
	if e := errs[0]; e.File != "dir/site.yaml" || e.Line != 2 || e.Column != 1 || e.Field != "machine" {
		t.Errorf("got %+v", e)
	}
}

func TestParseConfigDefaults(t *testing.T) {
	c, warnings, err := ParseConfig("hostler.yaml", nil)
	if err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	if diff := cmp.Diff(DefaultConfig(), c); diff != "" {
		t.Error(diff)
	}
	c, _, err = ParseConfig("hostler.yaml", []byte("retry-delay: 2s\ntypes: {lxd: {pool: fast}}\n"))
	if err != nil || c.RetryDelay.Std() != 2*time.Second || c.Types.LXD != (LXDConfig{"fast", 1500, "local"}) {
		t.Errorf("got %+v, %v", c, err)
	}
}

// C17: an unknown key causes a warning that names it.
func TestParseConfigWarnsOfUnknownKeys(t *testing.T) {
	_, warnings, err := ParseConfig("hostler.yaml", []byte("harvest: all\ntypes:\n  lxd: {pol: x}\n"))
	if err != nil || len(warnings) != 1 {
		t.Fatal(warnings, err)
	}
	const want = `hostler.yaml:3:9: types.lxd.pol: the key "pol" is not known here; did you mean "pool"?`
	if got := warnings[0].Summary(); got != want {
		t.Errorf("got %s", got)
	}
}

// I14: log lines and notices show the place of an error in a file and never
// repeat a possible password.
func TestSummariesRepeatNoSecrets(t *testing.T) {
	const machine = "version: 1\nmachines:\n  web:\n    type: lxd\n    image: debian/12\n    cloud-init:\n"
	declared := func(s string) error { _, err := Parse("web.yaml", []byte(s)); return err }
	configured := func(s string) error { _, _, err := ParseConfig("hostler.yaml", []byte(s)); return err }
	for _, c := range []struct {
		parse func(string) error
		yaml  string
		place string
	}{
		{declared, machine + "      user-data: |\n        #cloud-config\n       password: hunter2\n", "web.yaml:9:"},
		{declared, machine + "      user-data: |\n        #cloud-config\n      password: hunter2\n", "web.yaml:9:"},
		{declared, machine[:len(machine)-1] + " |\n      #cloud-config\n      password: hunter2\n", "web.yaml:6:"},
		{declared, machine + "      user-data: *hunter2\n", "web.yaml:7:"},
		{declared, machine + "      user-data: &hunter2\n", "web.yaml:7:"},
		{declared, machine + "      user-data: !hunter2\n", "web.yaml:7:"},
		{declared, "version: 1\nmachines: {web: {type: lxd, image: 'https://user:hunter2@h'}}\n", "web.yaml:2:36: machines.web.image"},
		{declared, "version: 1\nmachines: {web: {type: lxd, image: 'ftp://user:hunter2@h/x'}}\n", "web.yaml:2:36: machines.web.image"},
		{declared, "version: 1\nmachines: {web: {type: lxd, image: 'https://h?sig=hunter2'}}\n", "web.yaml:2:36: machines.web.image"},
		{configured, "proxy: {http: 'ftp://user:hunter2@p:1'}\n", "hostler.yaml:1:15: proxy.http"},
		{configured, "proxy:\n  http: http://user:hunter2@p:1\n  http: http://user:hunter2@p:1\n", "hostler.yaml:3:3"},
		{configured, "proxy: http://user:hunter2@p:1\n", "hostler.yaml:1:8: proxy"},
		{configured, "apt: http://user:hunter2@p:1\n", "hostler.yaml:1:6: apt"},
		{configured, "proxy: {http: *hunter2}\n", "hostler.yaml:1:15"},
	} {
		err := c.parse(c.yaml)
		if err == nil {
			t.Errorf("accepted: %s", c.yaml)
			continue
		}
		err = fmt.Errorf("cannot begin: %w", err)
		got := Summary(err)
		if strings.Contains(got, "hunter2") || !strings.Contains(got, c.place) || !strings.HasPrefix(got, "cannot begin: ") {
			t.Errorf("%s\nis told as\n%s", c.yaml, got)
		}
	}
}
