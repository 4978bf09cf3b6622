package lxc

import (
	"slices"
	"strings"
	"testing"

	"hostler/containerbroker"
)

const byHand = `# made by hand
lxc.include = /usr/share/lxc/config/common.conf

lxc.net.0.type = veth
  lxc.net.0.link=lxcbr0
lxc.net.0.hwaddr = 00:16:3E:AA:BB:CC
lxc.net.7.type = veth
lxc.net.7.name = lan
lxc.cap.drop = one two
lxc.cap.drop =
lxc.cap.drop = "three"
lxc.uts.name = web
`

// A config keeps the lines that a change does not touch, comments included.
func TestConfigEdits(t *testing.T) {
	c := parseConfig(byHand)
	if c.String() != byHand {
		t.Errorf("it came back as %q", c)
	}
	if got := c.all("lxc.cap.drop"); !slices.Equal(got, []string{"three"}) {
		t.Errorf("an empty value clears those before it: %q", got)
	}
	c.set("lxc.uts.name", "other")
	c.add("lxc.cap.drop", "four")
	c.remove("lxc.cap.drop", "one two")
	c.dropInterface(7)
	want := strings.NewReplacer("= web", "= other", "lxc.net.7.type = veth\nlxc.net.7.name = lan\n", "", "lxc.cap.drop = one two\n", "").Replace(byHand) + "lxc.cap.drop = four\n"
	if c.String() != want {
		t.Errorf("edited to\n%swant\n%s", c, want)
	}
	c.set("lxc.uts.name", "")
	if strings.Contains(c.String(), "uts") {
		t.Error("an empty value does not remove the key")
	}
}

// The guest's interfaces are found in any order and notation.
func TestConfigInterfaces(t *testing.T) {
	got := parseConfig(byHand + "lxc.net.x.type = veth\nlxc.net.-1.type = veth\nlxc.net = veth\n").interfaces()
	want := []iface{{index: 0, kind: "veth", link: "lxcbr0", hwaddr: "00:16:3e:aa:bb:cc", name: "eth0"}, {index: 7, kind: "veth", name: "lan"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	c := parseConfig(byHand)
	nic := containerbroker.NIC{Name: "lan", Bridge: "br0", MAC: "00:16:3E:00:00:01", MTU: 1400}
	putInterface(&c, nic)
	once := c.String()
	putInterface(&c, nic)
	if i, is := c.findNIC("lan"); !is || i.pair != "hn00163e000001" || i.mtu != 1400 || c.String() != once {
		t.Errorf("changed to %+v:\n%s", i, c)
	}
}

// The network namespace of the host, or of another container, is recognised.
func TestSharedNetwork(t *testing.T) {
	for text, want := range map[string]bool{
		byHand: false, "": false, "lxc.net.0.type = empty": false, "lxc.namespace.clone = mount net": false, "lxc.namespace.keep = user": false,
		"lxc.net.0.type = none": true, "lxc.namespace.share.net = web": true, "lxc.namespace.keep = user net": true, "lxc.namespace.clone = mount pid": true,
	} {
		if got := parseConfig(text).sharesNetwork(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// liblxc refuses a whole config for one unknown key.
func TestWrongLines(t *testing.T) {
	for text, want := range map[string]string{
		byHand: "", "": "", "anything else\n": "", "# lxc.bad = 1\n": "",
		"lxc.uts.name = a\nlxc.utsname = a\n": "lxc.utsname = a",
		"lxc.net.0.type\n":                    "lxc.net.0.type",
		"lxc.environment = A=b\n":             "",
	} {
		if got := parseConfig(text).wrong(); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// A hostile or damaged config is read without a panic, and an edit of it is
// found again.
func FuzzConfig(f *testing.F) {
	f.Add(byHand)
	f.Add("lxc.net.99999999999999999999.type=veth\n=\n==\n'\n\"")
	f.Fuzz(func(t *testing.T, text string) {
		c := parseConfig(text)
		_, _, _, _ = c.interfaces(), c.wrong(), rootPath(c), archOf(c)
		_, _, _ = New(Options{}).readLimits(c)
		c.set("lxc.uts.name", "fuzzed")
		c.add("lxc.cap.drop", "fuzzed")
		if again := parseConfig(c.String()); again.get("lxc.uts.name") != "fuzzed" || !slices.Contains(again.all("lxc.cap.drop"), "fuzzed") {
			t.Errorf("the edit is lost in %q", c)
		}
		nic := containerbroker.NIC{Name: "fuzz0", Bridge: "br0", MAC: "00:16:3e:00:00:01"}
		putInterface(&c, nic)
		if i, is := c.findNIC("fuzz0"); !is || i.link != "br0" {
			t.Errorf("the interface is lost in %q", c)
		}
	})
}
