package dhcp

import (
	"net/netip"
	"strings"
	"testing"

	"hostler/internal/fault"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func lan() Network {
	return Network{
		Bridge:    "br-lan",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.20.0.1/24"), netip.MustParsePrefix("fd00:20::1/64")},
		Ranges:    []Range{{addr("10.20.0.100"), addr("10.20.0.199")}, {addr("fd00:20::100"), addr("fd00:20::1ff")}},
		Upstream:  []netip.Addr{addr("192.0.2.53")},
		Hosts: []Host{
			{Name: "web", MAC: "02:00:00:00:00:10", Addresses: []netip.Addr{addr("10.20.0.10"), addr("fd00:20::10")}},
			{Name: "db", MAC: "02:00:00:00:00:11", Addresses: []netip.Addr{addr("10.20.0.11")}},
		},
	}
}

func TestConfig(t *testing.T) {
	text, err := config(lan(), "/run/x")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"interface=br-lan\n", "bind-dynamic\n", "except-interface=lo\n",
		"dhcp-range=10.20.0.100,10.20.0.199,255.255.255.0,3600s\n",
		"dhcp-range=fd00:20::,static,64,3600s\ndhcp-range=tag:!known,fd00:20::100,fd00:20::1ff,64,3600s\n", "enable-ra\n",
		"dhcp-ignore-clid\ndhcp-lease-max=360\n",
		"dhcp-host=02:00:00:00:00:10,10.20.0.10,[fd00:20::10],web,43200s\n",
		"host-record=web,10.20.0.10,fd00:20::10\n",
		"no-resolv\nserver=192.0.2.53\n", "dhcp-leasefile=/run/x/leases\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	searched := lan()
	searched.Search = []string{"corp.example", "lab.example"}
	if text, err := config(searched, "/run/x"); err != nil ||
		!strings.Contains(text, "dhcp-option=option:domain-search,corp.example,lab.example\ndhcp-option=option6:domain-search,corp.example,lab.example\n") {
		t.Errorf("no search domains, %v, in\n%s", err, text)
	}
	moving := lan()
	moving.Hosts[1].Named = []netip.Addr{addr("10.20.0.9")}
	if text, err := config(moving, "/run/x"); err != nil ||
		!strings.Contains(text, "dhcp-host=02:00:00:00:00:11,10.20.0.11,db,43200s\nhost-record=db,10.20.0.9\n") {
		t.Errorf("the name does not lead to the former address, %v, in\n%s", err, text)
	}
	renamed := lan()
	renamed.Hosts[1].Former = []string{"02:00:00:00:00:12"}
	if text, err := config(renamed, "/run/x"); err != nil || !strings.Contains(text, "dhcp-host=02:00:00:00:00:11,02:00:00:00:00:12,10.20.0.11,db,43200s\n") {
		t.Errorf("the former interface has not the address, %v, in\n%s", err, text)
	}
	n := lan()
	n.Hosts[0], n.Hosts[1] = n.Hosts[1], n.Hosts[0]
	if again, _ := config(n, "/run/x"); again != text {
		t.Error("another order of hosts gives another text")
	}
	n.Index = 7
	seventh, _ := config(n, "/run/x")
	n.Index = 8
	if eighth, _ := config(n, "/run/x"); eighth == seventh {
		t.Error("a bridge that was made again has the same text")
	}
}

func TestBadConfig(t *testing.T) {
	for message, change := range map[string]func(*Network){
		`"br\nlan" is not the name of a bridge`:                                  func(n *Network) { n.Bridge = "br\nlan" },
		`"a\nuser=root" is not a domain`:                                         func(n *Network) { n.Search = []string{"a\nuser=root"} },
		`"a,b" is not a domain`:                                                  func(n *Network) { n.Search = []string{"a,b"} },
		`"a,b" is not the name of a host`:                                        func(n *Network) { n.Hosts[0].Name = "a,b" },
		`"02:00:00:00:00:0x" is not a MAC address`:                               func(n *Network) { n.Hosts[0].MAC = "02:00:00:00:00:0x" },
		`10.20.0.10 belongs to both web and db`:                                  func(n *Network) { n.Hosts[1].Addresses = n.Hosts[0].Addresses[:1] },
		`02:00:00:00:00:10 belongs to both web and db`:                           func(n *Network) { n.Hosts[1].MAC = n.Hosts[0].MAC },
		`02:00:00:00:00:11 belongs to both web and db`:                           func(n *Network) { n.Hosts[0].Former = []string{n.Hosts[1].MAC} },
		`the address 10.9.0.1 of web is in no subnet of br-lan`:                  func(n *Network) { n.Hosts[0].Addresses = []netip.Addr{addr("10.9.0.1")} },
		`the range 10.20.0.9 to 10.20.1.9 is not in one subnet of br-lan`:        func(n *Network) { n.Ranges = []Range{{addr("10.20.0.9"), addr("10.20.1.9")}} },
		`the range 10.20.0.1 to 10.20.0.9 contains the host's address 10.20.0.1`: func(n *Network) { n.Ranges = []Range{{addr("10.20.0.1"), addr("10.20.0.9")}} },
	} {
		n := lan()
		change(&n)
		if _, err := config(n, "/run/x"); err == nil || err.Error() != "cannot configure DHCP: "+message || !fault.Is(err, fault.Invalid) {
			t.Errorf("got %v, want %s", err, message)
		}
	}
}
