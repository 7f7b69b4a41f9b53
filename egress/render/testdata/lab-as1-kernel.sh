#!/bin/sh
# Border router as1 of AS 65000, made by plait egress render kernel: what FRR leaves to the administrator of the kernel.
#
#   kernel.sh up      before FRR starts, at each boot; a second time changes nothing
#   kernel.sh down    takes back what was done, by an earlier rendering too; stop FRR first
#
# Each exit's interface moves into a VRF: what was routed over it in the main table ends, its IPv6 addresses stay.
set -eu
state=/run/plait-render/as1
status=0

# problem WORDS: an exit is not as it should be; the others are made all the same.
problem() {
	echo "kernel.sh: $*" >&2
	status=1
}

# undo COMMAND: is for down, which runs the last one first.
undo() {
	mkdir -p "$state"
	grep -qxF "$*" "$state/undo" 2>/dev/null || echo "$*" >>"$state/undo"
}

# keep KEY VALUE: sets a sysctl.
keep() {
	was=$(sysctl -n "$1")
	[ "$was" = "$2" ] && return
	undo give "$1" "$was"
	sysctl -qw "$1=$2"
}

# give KEY VALUE: sets a sysctl back, if what it is of is still there.
give() {
	[ ! -e "/proc/sys/$1" ] || sysctl -qw "$1=$2"
}

# there INTERFACE: whether it is.
there() {
	ip link show dev "$1" >/dev/null 2>&1
}

# master INTERFACE: what it is part of.
master() {
	ip -o link show dev "$1" 2>/dev/null | sed -n 's/.* master \([^ ]*\) .*/\1/p'
}

# fits VRF INTERFACE TABLE: whether the exit can be had.
fits() {
	of=$(master "$2")
	if ! there "$2"; then
		problem "no $1: there is no interface $2; once there is, run this again"
	elif [ -n "$of" ] && [ "$of" != "$1" ]; then
		problem "no $1: $2 is part of $of; take it out there, or run the kernel.sh down of whoever put it in"
	elif [ -e "$state/$1" ] && [ "$(cat "$state/$1")" != "$2 $3" ]; then
		problem "no $1: an earlier rendering has it with interface and table $(cat "$state/$1"); stop FRR, run kernel.sh down, and begin anew"
	else
		mkdir -p "$state" && echo "$2 $3" >"$state/$1"
		return 0
	fi
	return 1
}

# vrf NAME TABLE: makes a VRF, once.
vrf() {
	there "$1" && grep -qxF "unvrf $1" "$state/undo" 2>/dev/null && return
	ip link add dev "$1" type vrf table "$2" || {
		echo "kernel.sh: add VRF $1: if it is there, it is somebody else's; if the kernel has no VRFs, it needs CONFIG_NET_VRF" >&2
		exit 1
	}
	undo unvrf "$1"
	ip link set dev "$1" up
}

unvrf() {
	! there "$1" || ip link del dev "$1"
}

# join INTERFACE VRF
join() {
	undo leave "$1" "$2"
	ip link set dev "$1" master "$2"
}

leave() {
	[ "$(master "$1")" != "$2" ] || ip link set dev "$1" nomaster
}

# route FAMILY TABLE DESTINATION WAY: to it by the interface into the network.
route() {
	undo unroute "$@"
	family=$1 table=$2
	shift 2
	ip "-$family" route replace "$@" dev csp table "$table"
}

unroute() {
	family=$1 table=$2
	shift 2
	[ -z "$(ip "-$family" route show "$1" table "$table" 2>/dev/null)" ] || ip "-$family" route del "$@" dev csp table "$table"
}

# rule FAMILY PRIORITY INTERFACE ACTION: for what comes from there, once, and in place of an earlier rendering's.
rule() {
	had=$(grep "^unrule $1 $2 $3 " "$state/undo" 2>/dev/null || :)
	[ "$had" = "unrule $*" ] && [ -n "$(ip "-$1" rule show priority "$2" iif "$3")" ] && return
	if [ -n "$had" ] && [ "$had" != "unrule $*" ]; then
		eval "$had"
		grep -vxF "$had" "$state/undo" >"$state/left" || :
		mv "$state/left" "$state/undo"
	fi
	undo unrule "$@"
	family=$1 priority=$2 interface=$3
	shift 3
	ip "-$family" rule add iif "$interface" "$@" priority "$priority"
}

unrule() {
	family=$1 priority=$2 interface=$3
	shift 3
	[ -z "$(ip "-$family" rule show priority "$priority" iif "$interface")" ] || ip "-$family" rule del iif "$interface" "$@" priority "$priority"
}

up() {
	modprobe -q vrf 2>/dev/null || : # it may be built in
	keep net/ipv6/conf/all/forwarding 1
	keep net/ipv6/conf/all/seg6_enabled 1
	keep net/ipv6/conf/csp/seg6_enabled 1
	keep net/vrf/strict_mode 1 # End.DT4 and End.DT46 need one VRF for each table

	# exit a
	if fits exit-1 a 101; then
		vrf exit-1 101
		# nobody outside has packets decapsulated, here or at another router
		rule 6 100 exit-1 to 2001:db8:f1::/48 blackhole
		rule 6 101 exit-1 to 2001:db8:f2::/48 blackhole
		# what this exit has no route for ends here, and does not leave by another one's in the main table
		rule 6 2000 exit-1 unreachable
		rule 4 2000 exit-1 unreachable
		keep net/ipv6/conf/a/keep_addr_on_down 1 # an interface that moves goes down and up
		join a exit-1
		# FRR 10.3 looks the SID up inside the VRF, and without this route takes what the exit announces for unreachable
		ip -6 route replace 2001:db8:f1::/48 dev exit-1 table 101
		# the way of answers to servers
		route 6 101 2001:db8:1::/64
		# the best path of everybody else, where FRR 8.4 keeps what the exit announces out of the main table
		rule 6 32800 csp table 101
	fi

	for had in "$state"/exit-*; do
		case ${had##*/} in
		exit-1) ;;
		"exit-*") ;;
		*) problem "${had##*/} is of an earlier rendering: stop FRR, run kernel.sh down, and begin anew" ;;
		esac
	done
	mtu=$(ip -o link show dev csp | sed 's/.* mtu \([0-9]*\) .*/\1/')
	[ "$mtu" -ge 1564 ] || echo "kernel.sh: csp has an MTU of $mtu: encapsulated packets of 1500 bytes need 1564" >&2
	return $status
}

down() {
	if [ -e "$state/undo" ]; then
		tac "$state/undo" | while read -r command; do
			eval "$command" || echo "$command" >>"$state/left"
		done
	fi
	if [ -e "$state/left" ]; then
		tac "$state/left" >"$state/undo"
		rm "$state/left"
		problem "not all is taken back; what is left is in $state/undo: run this again, or do it by hand and remove that directory"
		return 1
	fi
	rm -rf "$state"
}

case "${1:-}" in
up | down) "$1" ;;
*)
	echo "usage: kernel.sh up | down" >&2
	exit 2
	;;
esac
