package experiment

import (
	"strings"
	"testing"
)

// TestCongestionControlThatIsNone: a misspelt one is told with its place, not by the guest.
func TestCongestionControlThatIsNone(t *testing.T) {
	app := two + "apps: {f: {type: download, from: server, to: client, bytes: 9, congestion: %}}\n"
	const nodes = "nodes: {client: {run: [modprobe tcp_mine]}}\n"
	for _, right := range append([]string{"plait_burst"}, KernelControls...) {
		accepts(t, strings.ReplaceAll(app, "%", right))
	}
	refuses(t, strings.ReplaceAll(app, "%", "cubik"), "test.yaml:5:64: apps.f.congestion: the guest's kernel has no congestion control cubik; did you mean cubic?")
	refuses(t, nodes+strings.ReplaceAll(app, "%", "other"), "no congestion control other (it has bbr, bic, ")
	accepts(t, nodes+strings.ReplaceAll(app, "%", "mine"))

	plain := strings.ReplaceAll(app, "%", "reno")
	refuses(t, plain+"sysctl: {net.ipv4.tcp_congestion_control: bbr2}", "sysctl.net.ipv4.tcp_congestion_control: the guest's kernel has no congestion control bbr2; did you mean bbr?")
	refuses(t, plain+"nodes: {server: {sysctl: {net/ipv4/tcp_congestion_control: bbr2}}}", "no congestion control bbr2")
	accepts(t, plain+"sysctl: {net.ipv4.tcp_congestion_control: bbr}")
	accepts(t, plain+"nodes: {server: {sysctl: {net.ipv4.tcp_congestion_control: }}}") // takes back what the topology file says
}

// TestSettings: what cannot be written under /proc/sys is told with its place, not by the guest.
func TestSettings(t *testing.T) {
	app := two + "apps: {f: {type: download, from: server, to: client, bytes: 9}}\n"
	refuses(t, app+"sysctl: {net: {ipv4: {tcp_sack: 0}}}", "test.yaml:6:10: sysctl.net: must be one value")
	refuses(t, app+"nodes: {server: {sysctl: {net.ipv4.tcp_rmem: [4096, 87380, 6291456]}}}", "nodes.server.sysctl.net.ipv4.tcp_rmem: must be one value")
	refuses(t, app+"sysctl: {tcp_sack: 0}", "sysctl.tcp_sack: is no name of a setting")
	accepts(t, app+"sysctl: {net.ipv4.tcp_rmem: 4096 87380 6291456, net/ipv4/tcp_sack: false}")
}
