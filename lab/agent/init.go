package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// modules of the guest kernel that experiments may need. They are loaded before the machine is saved, so that no
// experiment waits for them. What a kernel lacks is left out: an experiment that needs it says so.
var modules = strings.Fields(`veth tun bridge vrf dummy ifb sctp ip_tunnel ip6_tunnel fou fou6 sit ipip ip_gre ip6_gre
	sch_netem sch_ingress sch_tbf sch_fq sch_fq_codel sch_codel sch_htb sch_red sch_prio
	cls_matchall cls_u32 cls_flower cls_bpf act_mirred act_gact act_bpf nf_tables nft_chain_nat nft_ct nft_compat
	tcp_bbr tcp_bic tcp_cdg tcp_dctcp tcp_diag tcp_highspeed tcp_htcp tcp_hybla tcp_illinois tcp_lp tcp_nv tcp_scalable
	tcp_vegas tcp_veno tcp_westwood tcp_yeah inet_diag mptcp_diag sctp_diag udp_diag af_packet_diag`)

// mounts the init process makes.
var mounts = []struct{ source, target, kind, data string }{
	{"proc", "/proc", "proc", ""},
	{"sysfs", "/sys", "sysfs", ""},
	{"devtmpfs", "/dev", "devtmpfs", ""},
	{"devpts", "/dev/pts", "devpts", "gid=5,mode=620"},
	{"tmpfs", "/dev/shm", "tmpfs", ""},
	{"tmpfs", "/run", "tmpfs", "mode=755"},
	{"tmpfs", "/tmp", "tmpfs", ""},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", ""},
	{"bpf", "/sys/fs/bpf", "bpf", ""},
	{"tracefs", "/sys/kernel/tracing", "tracefs", ""},
}

// boot does what an init process does before anything else can run.
func boot() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for _, dir := range []string{"/run/netns", "/run/frr", "/run/lock"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("plait")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	// Without randomness from the processor the kernel takes a second to gather some, and makes the first who asks wait: it
	// is done before the machine is saved, not during an experiment (nginx and iperf3 ask when they start).
	if _, err := unix.Getrandom(make([]byte, 1), 0); err != nil {
		return fmt.Errorf("wait for the kernel's random numbers: %w", err)
	}
	// -a goes on after a module that is not there, and its exit status says only that.
	_ = exec.Command("modprobe", append([]string{"-a", "-q"}, modules...)...).Run()
	return warmUp()
}

// warmUp opens a first connection. With it the kernel draws its secrets and rewrites its own code (net/core/secure_seq.c,
// get_random_once), which would make the first connection of every experiment some milliseconds late.
func warmUp() error {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("bring lo up: %w: %s", err, out)
	}
	for _, address := range []string{"[::1]:0", "127.0.0.1:0"} {
		for _, multipath := range []bool{false, true} {
			var listening net.ListenConfig
			listening.SetMultipathTCP(multipath)
			l, err := listening.Listen(context.Background(), "tcp", address)
			if err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
			var dialer net.Dialer
			dialer.SetMultipathTCP(multipath)
			conn, err := dialer.Dial("tcp", l.Addr().String())
			if err != nil {
				return fmt.Errorf("warm up: %w", errors.Join(err, l.Close()))
			}
			if err := errors.Join(conn.Close(), l.Close()); err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
		}
	}
	return nil
}

// release of the running kernel, as uname -r.
func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
