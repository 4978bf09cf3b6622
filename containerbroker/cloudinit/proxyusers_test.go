package cloudinit

import "testing"

// User-data of an earlier version has the passwords of the proxies; any other
// difference counts.
func TestOnlyProxyUsersDiffer(t *testing.T) {
	bare := Input{
		Hostname: "web", HTTPProxy: "http://proxy:3128", HTTPSProxy: "http://other:3128", NoProxy: "localhost", AptProxy: "http://apt:3142",
		SSHKeys: []string{"ssh-ed25519 AAAA"}, UserData: "#cloud-config\npackages: [nginx]\n",
	}
	full := bare
	full.HTTPProxy, full.HTTPSProxy, full.AptProxy = "http://me:secret@proxy:3128", "http://me@other:3128", "http://me:p%40ss@apt:3142"
	for name, c := range map[string]struct {
		former func(g *Input)
		want   bool
	}{
		"the passwords":                   {func(*Input) {}, true},
		"a part alone":                    {func(g *Input) { g.HTTPProxy = bare.HTTPProxy }, true},
		"nothing":                         {func(g *Input) { *g = bare }, false},
		"another proxy":                   {func(g *Input) { g.HTTPProxy = "http://me:secret@elsewhere:3128" }, false},
		"another proxy for packages":      {func(g *Input) { g.AptProxy = "http://me:secret@elsewhere:3128" }, false},
		"the host name as well":           {func(g *Input) { g.Hostname = "db" }, false},
		"the user's own data as well":     {func(g *Input) { g.UserData += "runcmd: []\n" }, false},
		"a password in user-data as well": {func(g *Input) { g.UserData += `{"apt": {"http_proxy": "http://me:secret@apt:3142"}}` }, false},
	} {
		former := full
		c.former(&former)
		data, err := UserData(former)
		if err != nil {
			t.Fatal(err)
		}
		if got := OnlyProxyUsersDiffer(bare, string(data)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, alone := range []Input{{HTTPProxy: full.HTTPProxy}, {AptProxy: full.AptProxy}} {
		data, err := UserData(alone)
		if err != nil {
			t.Fatal(err)
		}
		if !OnlyProxyUsersDiffer(Input{HTTPProxy: withoutUser(alone.HTTPProxy), AptProxy: withoutUser(alone.AptProxy)}, string(data)) {
			t.Errorf("%+v", alone)
		}
	}
	for _, other := range []string{"", "#!/bin/sh\n", "Content-Type: nonsense"} {
		if OnlyProxyUsersDiffer(bare, other) {
			t.Errorf("%q is the same", other)
		}
	}
}
