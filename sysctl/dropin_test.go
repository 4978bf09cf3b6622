package sysctl

import (
	"strings"
	"testing"
)

func TestLineName(t *testing.T) {
	for line, want := range map[string]string{
		"net.ipv4.ip_forward = 1":               "net/ipv4/ip_forward",
		"-net/ipv4/conf/eth0.5/forwarding=1":    "net/ipv4/conf/eth0.5/forwarding",
		"net.ipv4.conf.eth0/5.forwarding = 1\n": "net/ipv4/conf/eth0.5/forwarding",
		"# net.ipv4.ip_forward = 1":             "",
		"; x = 1":                               "",
		"no value":                              "",
	} {
		if got := lineName(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func FuzzRender(f *testing.F) {
	f.Add("# note\nvm.swappiness = 10\n", "net/ipv4/ip_forward", "1")
	f.Add(header+"net/ipv4/ip_forward = 0\n\n;x\n-a.b=c", "net/ipv4/ip_forward", "1")
	f.Fuzz(func(t *testing.T, old, name, value string) {
		if checkSetting(Setting{Name: name, Value: value}) != nil {
			return
		}
		value = normal(value)
		text := render(old, nil, map[string]string{name: value})
		if again := render(text, nil, map[string]string{name: value}); again != text {
			t.Fatalf("%q renders as %q and again as %q", old, text, again)
		}
		if !strings.HasSuffix(text, name+" = "+value+"\n") {
			t.Fatalf("%q lacks the setting", text)
		}
		// Every foreign setting still exists.
		for line := range strings.Lines(old) {
			if n := lineName(line); n != "" && n != name && !strings.Contains(text, strings.TrimRight(line, "\n")) {
				t.Fatalf("%q lost %q", text, line)
			}
		}
	})
}
