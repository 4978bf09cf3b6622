package persist

import (
	"fmt"
	"strings"
)

// ifupDir holds scripts that ifupdown runs after configuring each interface
// (interfaces(5)). A script there leaves the administrator's stanza unchanged,
// and works no matter which file contains the stanza.
const ifupDir = "etc/network/if-up.d"

// ifupdownScript moves the NIC's configuration to the bridge. ifupdown runs it
// once per address family; the second run changes nothing.
const ifupdownScript = `#!/bin/sh
%[1]s# Puts %[3]s under %[2]s after ifupdown has configured it. Removed by hostler.
[ "$IFACE" = "%[3]s" ] || exit 0
ip link show dev %[2]s >/dev/null 2>&1 ||
	ip link add name %[2]s address %[4]s type bridge stp_state 0 forward_delay 0
# If the kernel cannot make the bridge, the NIC stays as it is.
[ -n "$(ip link show dev %[2]s type bridge 2>/dev/null)" ] || exit 0
# The bridge treats router advertisements as the NIC did.
for key in accept_ra autoconf use_tempaddr; do
	{ cat "/proc/sys/net/ipv6/conf/%[3]s/$key" >"/proc/sys/net/ipv6/conf/%[2]s/$key"; } 2>/dev/null
done
ip link set dev %[2]s alias "%[5]s" up%[6]s
# Without its address dhcpcd would lease again for the NIC.
for file in "/run/dhcpcd/%[3]s.pid" "/run/dhcpcd/%[3]s-4.pid"; do
	[ "$METHOD" = dhcp ] && [ -s "$file" ] || continue
	kill -KILL "$(cat "$file")" && rm -f "$file"
	client="dhcpcd -b"
	case "$file" in *-4.pid) client="dhcpcd -b -4" ;; esac
done
ip link set dev %[3]s master %[2]s || {
	[ -z "$client" ] || $client %[3]s
	exit 0
}
ip -o addr show dev %[3]s scope global | while read -r _ _ family address rest; do
	case "$rest" in *"brd "*) broadcast="broadcast $(echo "$rest" | sed 's/.*brd \([^ ]*\).*/\1/')" ;; *) broadcast= ;; esac
	nodad=; [ "$family" = inet6 ] && nodad=nodad
	# A lease that loses its end looks like an address of the administrator.
	ends=$(echo "$rest" | sed -n 's/.*\(valid_lft [0-9]*\)sec \(preferred_lft [0-9]*\)sec.*/\1 \2/p')
	# shellcheck disable=SC2086 # these are many words
	ip addr replace "$address" $broadcast dev %[2]s $nodad $ends
done
{ ip -4 route show dev %[3]s; ip -6 route show dev %[3]s; } | grep -v 'proto kernel' |
	sed 's/ linkdown//; s/ pref medium//; s/ expires \([0-9]*\)sec/ expires \1/' | sort -k 2 |
	while read -r route; do
		# shellcheck disable=SC2086 # a route is many words
		ip route append $route dev %[2]s 2>/dev/null && ip route del $route dev %[3]s
	done
if [ "$METHOD" = dhcp ] && [ -s "/run/dhclient.%[3]s.pid" ]; then
	kill "$(cat /run/dhclient.%[3]s.pid)"
	client="dhclient -4 -nw -pf /run/dhclient.%[2]s.pid -lf /var/lib/dhcp/dhclient.%[2]s.leases"
fi
ip -4 addr flush dev %[3]s
ip -6 addr flush dev %[3]s
%[7]sfor lease in lease lease6; do
	[ ! -e "/var/lib/dhcpcd/%[3]s.$lease" ] || cp -p "/var/lib/dhcpcd/%[3]s.$lease" "/var/lib/dhcpcd/%[2]s.$lease"
done
[ -z "$client" ] || $client %[2]s
exit 0
`

func ifupdownFiles(b Bridge) map[string]string {
	mtu, addresses := "", ""
	if b.MTU != 0 {
		mtu = fmt.Sprintf(" mtu %d", b.MTU)
	}
	for _, a := range b.Addresses {
		addresses += fmt.Sprintf("ip addr replace %s dev %s\n", a, b.Name)
	}
	// run-parts(8) skips names with dots.
	name := ifupDir + "/hostler-" + strings.ReplaceAll(b.Name, ".", "_")
	return map[string]string{name: fmt.Sprintf(ifupdownScript, b.mark(), b.Name, b.NIC, b.MAC, b.Stamp, mtu, addresses)}
}
