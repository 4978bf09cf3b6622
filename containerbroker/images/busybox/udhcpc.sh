#!/bin/sh
# What udhcpc calls with each change of a lease.
case $1 in
deconfig)
	ip address flush dev "$interface"
	ip link set "$interface" up
	;;
bound | renew)
	ip address replace "$ip/$mask" dev "$interface"
	[ -z "${router:-}" ] || ip route replace default via "${router%% *}" dev "$interface"
	: > /etc/resolv.conf
	for server in ${dns:-}; do echo "nameserver $server" >> /etc/resolv.conf; done
	;;
esac
