#!/bin/sh
# Waits up to 10 s until one of the guest's devices is online. networkd calls a
# device with static addresses configured only after a router's advertisement,
# or after about 10 s without one, unless the device ignores routers; cloud-init
# 22.4 cannot write that. Here such a device is online with its address and its
# default route.
networks=${1:-/etc/systemd/network} waiter=${2:-/lib/systemd/systemd-networkd-wait-online}
grep -qs '^DHCP=no' "$networks"/10-cloud-init-*.network || exec "$waiter" --any --timeout=10
"$waiter" --any --timeout=10 &
while kill -0 $! 2>/dev/null; do
	for file in "$networks"/10-cloud-init-*.network; do
		grep -qs '^DHCP=no' "$file" && grep -q '^Address=' "$file" || continue
		device=${file##*/10-cloud-init-}
		device=${device%.network}
		[ -n "$(ip -o address show dev "$device" scope global -tentative 2>/dev/null)" ] || continue
		if ! grep -q '^Gateway=' "$file" || [ -n "$(ip route show default dev "$device"; ip -6 route show default dev "$device")" ]; then
			kill $!
			exit 0
		fi
	done
	sleep 0.1
done
