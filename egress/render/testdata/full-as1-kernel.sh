#!/bin/sh
# Border router as1 of AS 4200000000, made by plait egress render kernel: what FRR leaves to the administrator of the kernel.
#
#   kernel.sh up      before FRR starts, at each boot; a second time changes nothing
#   kernel.sh down    takes it back; stop FRR first
#
# Each exit's interface moves into a VRF: what was routed over it in the main table ends, its IPv6 addresses stay.
set -eu
state=/run/plait-render/as1

# keep KEY VALUE: sets a sysctl and remembers what it was.
keep() {
	was=$(sysctl -n "$1")
	[ "$was" = "$2" ] && return
	[ -e "$state/sysctl/$1" ] || { mkdir -p "$state/sysctl/${1%/*}" && echo "$was" >"$state/sysctl/$1"; }
	sysctl -qw "$1=$2"
}

# give KEY: sets a sysctl back.
give() {
	[ ! -e "$state/sysctl/$1" ] || sysctl -qw "$1=$(cat "$state/sysctl/$1")"
}

# vrf NAME TABLE: makes a VRF, once.
vrf() {
	[ -e "$state/vrf/$1" ] && ip link show dev "$1" >/dev/null 2>&1 && return
	ip link add dev "$1" type vrf table "$2" || {
		echo "kernel.sh: add VRF $1: if it is there, it is somebody else's; if the kernel has no VRFs, it needs CONFIG_NET_VRF" >&2
		exit 1
	}
	mkdir -p "$state/vrf" && : >"$state/vrf/$1"
	ip link set dev "$1" up
}

# rule FAMILY TABLE PRIORITY: has what comes from inside looked up in an exit's table too, behind the main one, once.
rule() {
	[ -n "$(ip "-$1" rule show priority "$3" table "$2")" ] || ip "-$1" rule add iif bond0.10 table "$2" priority "$3"
}

up() {
	modprobe -q vrf 2>/dev/null || : # it may be built in
	keep net/ipv6/conf/all/forwarding 1
	keep net/ipv6/conf/all/seg6_enabled 1
	keep net/ipv6/conf/bond0.10/seg6_enabled 1
	keep net/vrf/strict_mode 1 # End.DT4 and End.DT46 need one VRF for each table
	keep net/ipv4/ip_forward 1
	keep net/ipv4/conf/all/rp_filter 0 # the way back of a decapsulated packet is not the way it came

	# exit transit b
	vrf exit-2 11201
	keep net/ipv6/conf/eth2/keep_addr_on_down 1 # an interface that moves goes down and up
	keep net/ipv4/conf/exit-2/rp_filter 0
	ip link set dev eth2 master exit-2
	# FRR 10.3 looks the SID up inside the VRF, and without this route takes what the exit announces for unreachable
	ip -6 route replace 2001:db8:f123::/48 dev exit-2 table 11201
	# the way of answers to servers
	ip -6 route replace 2001:db8::/32 via 2001:db8:1::fe dev bond0.10 table 11201
	ip -6 route replace 2001:db8:1:2::3/128 via 2001:db8:1::fe dev bond0.10 table 11201
	ip -6 route replace 2001:db8:b::/48 via 2001:db8:1::fe dev bond0.10 table 11201
	# the best path of everybody else, where FRR 8.4 keeps what the exit announces out of the main table
	rule 6 11201 32801

	# exit transit a
	vrf exit-1 11200
	keep net/ipv6/conf/eth1/keep_addr_on_down 1 # an interface that moves goes down and up
	keep net/ipv4/conf/exit-1/rp_filter 0
	ip link set dev eth1 master exit-1
	# FRR 10.3 looks the SID up inside the VRF, and without this route takes what the exit announces for unreachable
	ip -6 route replace 2001:db8:f123::/48 dev exit-1 table 11200
	# the way of answers to servers
	ip -6 route replace 2001:db8::/32 via 2001:db8:1::fe dev bond0.10 table 11200
	ip -6 route replace 2001:db8:1:2::3/128 via 2001:db8:1::fe dev bond0.10 table 11200
	ip -4 route replace 198.51.100.0/24 via 192.0.2.254 dev bond0.10 table 11200
	ip -4 route replace 203.0.113.128/25 via 192.0.2.254 dev bond0.10 table 11200
	# the best path of everybody else, where FRR 8.4 keeps what the exit announces out of the main table
	rule 6 11200 32800
	rule 4 11200 32800

	mtu=$(ip -o link show dev bond0.10 | sed 's/.* mtu \([0-9]*\) .*/\1/')
	[ "$mtu" -ge 1564 ] || echo "kernel.sh: bond0.10 has an MTU of $mtu: encapsulated packets of 1500 bytes need 1564" >&2
}

down() {
	if [ -e "$state/vrf/exit-2" ]; then
		ip -6 route del 2001:db8::/32 via 2001:db8:1::fe dev bond0.10 table 11201 || :
		ip -6 route del 2001:db8:1:2::3/128 via 2001:db8:1::fe dev bond0.10 table 11201 || :
		ip -6 route del 2001:db8:b::/48 via 2001:db8:1::fe dev bond0.10 table 11201 || :
		ip -6 rule del iif bond0.10 table 11201 priority 32801 || :
		ip link set dev eth2 nomaster || :
		ip link del dev exit-2 || : # and its routes with it
		rm "$state/vrf/exit-2"
	fi
	give net/ipv6/conf/eth2/keep_addr_on_down
	if [ -e "$state/vrf/exit-1" ]; then
		ip -6 route del 2001:db8::/32 via 2001:db8:1::fe dev bond0.10 table 11200 || :
		ip -6 route del 2001:db8:1:2::3/128 via 2001:db8:1::fe dev bond0.10 table 11200 || :
		ip -6 rule del iif bond0.10 table 11200 priority 32800 || :
		ip -4 route del 198.51.100.0/24 via 192.0.2.254 dev bond0.10 table 11200 || :
		ip -4 route del 203.0.113.128/25 via 192.0.2.254 dev bond0.10 table 11200 || :
		ip -4 rule del iif bond0.10 table 11200 priority 32800 || :
		ip link set dev eth1 nomaster || :
		ip link del dev exit-1 || : # and its routes with it
		rm "$state/vrf/exit-1"
	fi
	give net/ipv6/conf/eth1/keep_addr_on_down
	give net/ipv4/conf/all/rp_filter
	give net/ipv4/ip_forward
	give net/vrf/strict_mode
	give net/ipv6/conf/bond0.10/seg6_enabled
	give net/ipv6/conf/all/seg6_enabled
	give net/ipv6/conf/all/forwarding
	rm -rf "$state"
}

case "${1:-}" in
up | down) "$1" ;;
*)
	echo "usage: kernel.sh up | down" >&2
	exit 2
	;;
esac
