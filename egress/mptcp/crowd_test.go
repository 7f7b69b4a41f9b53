package mptcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// ports tell the connections of this benchmark apart.
type ports struct{ client, server uint16 }

// capture notes when packets of connections pass an interface, by the kernel's clock.
type capture struct {
	fd       int
	third    map[ports]time.Duration // third packet of the handshake, which establishes the connection
	announce map[ports]time.Duration // first ADD_ADDR to it
	stopping chan struct{}
	ended    chan struct{}
}

// capture begins on an interface of the server.
func (w *world) capture(link string) *capture {
	w.Helper()
	c := &capture{third: map[ports]time.Duration{}, announce: map[ports]time.Duration{}, stopping: make(chan struct{}), ended: make(chan struct{})}
	w.in(w.server, func() error {
		device, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		const all = unix.ETH_P_ALL << 8 // in the network's order; with ETH_P_IP alone, those that leave would be missing
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20),
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
			unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index}))
	})
	go c.run()
	return c
}

func (c *capture) run() {
	defer close(c.ended)
	defer unix.Close(c.fd)
	packet, control := make([]byte, 2048), make([]byte, 256)
	for {
		n, size, _, from, err := unix.Recvmsg(c.fd, packet, control, 0)
		if err != nil { // for a while there were no packets
			select {
			case <-c.stopping:
				return
			default:
				continue
			}
		}
		messages, err := unix.ParseSocketControlMessage(control[:size])
		if err != nil || len(messages) != 1 || len(messages[0].Data) < 16 || n < 40 || packet[0]>>4 != 4 {
			continue
		}
		stamp := messages[0].Data
		at := time.Duration(binary.NativeEndian.Uint64(stamp))*time.Second + time.Duration(binary.NativeEndian.Uint64(stamp[8:]))
		tcp := packet[4*(packet[0]&15) : min(n, int(binary.BigEndian.Uint16(packet[2:])))]
		options := int(tcp[12] >> 4 * 4)
		if out := from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING; !out && tcp[13]&2 == 0 { // no SYN
			note(c.third, ports{binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])}, at)
		} else if out && announces(tcp[20:options]) {
			note(c.announce, ports{binary.BigEndian.Uint16(tcp[2:]), binary.BigEndian.Uint16(tcp)}, at)
		}
	}
}

// note keeps the first time.
func note(times map[ports]time.Duration, port ports, at time.Duration) {
	if _, known := times[port]; !known {
		times[port] = at
	}
}

// announces says whether ADD_ADDR is among TCP options (RFC 8684 section 3.4.1).
func announces(options []byte) bool {
	for len(options) > 2 && options[0] > 0 {
		size := 1
		if options[0] > 1 { // no padding
			size = int(options[1])
		}
		if options[0] == 30 && options[2]>>4 == 3 {
			return true
		}
		options = options[min(max(size, 1), len(options)):]
	}
	return false
}

// stop ends the capture and returns how long each announcement took, sorted.
func (c *capture) stop() (took []time.Duration) {
	close(c.stopping)
	<-c.ended
	for port, at := range c.announce {
		if since, known := c.third[port]; known {
			took = append(took, at-since)
		}
	}
	slices.Sort(took)
	return took
}

// joinCounter is of subflows that clients added.
const joinCounter = "MPTcpExtMPJoinAckRx"

// joined waits until the server's kernel has counted a subflow that a client added for nearly each of n more connections than before, and for their events. Of 20,000 ADD_ADDR a
// few get lost in the clients' kernel on some days, and here nobody repeats them.
func (w *world) joined(before, n int64) {
	w.Helper()
	w.until("subflow of 99.9 % of the connections", func() bool { return w.counter(w.server, joinCounter)-before >= n-n/1000 })
	time.Sleep(100 * time.Millisecond)
}

// crowdVariable makes this program client and server of the connections it describes. A process may have 20,000 files on many systems.
const crowdVariable = "PLAIT_TEST_MPTCP_CROWD"

// answer is how many bytes a client of the crowd sends and gets back.
const answer = 1000

// crowdMain opens connections to a server in another namespace when its input has a byte, so many a second, says how long that took and what processor time, and holds them until the input ends.
func crowdMain(text string) error {
	var server string
	var port uint16
	var n, perSecond int
	if _, err := fmt.Sscan(text, &server, &port, &n, &perSecond); err != nil {
		return err
	}
	accepted, failed := make([]net.Conn, 0, n), make(chan error, n+1)
	if err := netns.Do(server, func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(true)
		l, err := config.Listen(context.Background(), "tcp4", fmt.Sprint(":", port))
		if err == nil {
			go func() {
				for range n {
					c, err := l.Accept()
					if err == nil {
						_, err = io.CopyN(c, c, answer)
					}
					failed <- err
					accepted = append(accepted, c)
				}
			}()
		}
		return err
	}); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	began, used := time.Now(), cpuUS()
	var dialer net.Dialer
	dialer.SetMultipathTCP(true)
	for i := range n {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		c, err := dialer.Dial("tcp", netip.AddrPortFrom(exitAddr(0, false), port).String())
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write(make([]byte, answer)); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, c, answer); err != nil {
			return err
		}
	}
	for range n {
		if err := <-failed; err != nil {
			return err
		}
	}
	fmt.Println(time.Since(began).Seconds(), cpuUS()-used)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it ends
	for _, c := range accepted {
		_ = c.Close()
	}
	return nil
}

// onProcessor is what runs a program on one processor, before all that has a lower or no real-time priority, as the processors of the lab's machines have.
func onProcessor(n int) []string {
	return []string{"chrt", "--fifo", "2", "taskset", "--cpu-list", fmt.Sprint(n)}
}

// crowd is processes on a processor that are ready to open so many connections each to the server.
func (w *world) crowd(holders, each, perSecond, processor int) (all []*child) {
	w.Helper()
	for i := range holders {
		all = append(all, w.child(w.client, fmt.Sprint(crowdVariable, "=", w.server, " ", 80+i, " ", each, " ", perSecond), onProcessor(processor)...))
	}
	return all
}

// open lets them, and says how many seconds the slowest took and how many microseconds of processor time all used.
func open(crowd []*child) (slowest, used float64) {
	for _, c := range crowd {
		c.next()
	}
	for _, c := range crowd {
		var took, cpu float64
		c.scan(&took, &cpu)
		slowest, used = max(slowest, took), used+cpu
	}
	return slowest, used
}

// BenchmarkCrowd opens 20,000 connections to one server, 1,000 in each second, that stay, each with a further subflow, as where there are two exits. It measures how
// long after the handshake's third packet ADD_ADDR leaves, on the wire and by the kernel's clock, and what the manager's process costs, kernel included.
//
// What else the machine does must not count: the manager, the clients and the servers are scheduled before it, the manager on a processor of its own as far as the network
// is concerned; what veth would do in its name on the client's side is done on the other one (RPS).
func BenchmarkCrowd(b *testing.B) {
	const holders, each, perSecond = 4, 5000, 250
	w := newWorld(b, "")
	for i := range links {
		for ns, name := range map[string]string{w.client: "c", w.server: "s"} {
			w.run("ip", "netns", "exec", ns, "sh", "-c", fmt.Sprintf("echo 2 > /sys/class/net/%s%d/queues/rx-0/rps_cpus", name, i))
		}
	}
	// A client's kernel gives each further subflow a local port that no other socket has, of half of these: 20,000 would not do otherwise.
	w.run("ip", "netns", "exec", w.client, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535")
	w.run("ip", "netns", "exec", w.server, "sysctl", "-qw", "net.mptcp.add_addr_timeout=0") // no repetitions by the kernel either
	manager := w.child(w.server, serviceVariable+"=1", onProcessor(0)...)
	for b.Loop() {
		crowd := w.crowd(holders, each, perSecond, 1)
		wire, joins, before := w.capture("s0"), w.counter(w.server, joinCounter), manager.report(false)
		slowest, _ := open(crowd)
		w.joined(joins, holders*each)
		after, delays := manager.report(false), wire.stop()
		if len(delays) < holders*each*9/10 {
			b.Fatalf("ADD_ADDR was seen on %d of %d connections", len(delays), holders*each)
		}
		cpu, seen := after.cpu-before.cpu, after.seen-before.seen
		b.ReportMetric(holders*each/slowest, "connections/s")
		b.ReportMetric(cpu/seen, "cpu-us/connection")
		b.ReportMetric(cpu/seen/1e6*1000*100, "%-of-a-core-at-1000/s")
		b.ReportMetric((after.joins-before.joins)/seen, "joins/connection")
		b.ReportMetric(after.subflows, "subflows")
		for name, d := range map[string]time.Duration{"median": delays[len(delays)/2], "p99": delays[len(delays)*99/100], "max": delays[len(delays)-1]} {
			b.ReportMetric(float64(d.Microseconds()), name+"-us-to-ADD_ADDR")
		}
		b.ReportMetric(after.slowest, "slowest-us")
		b.ReportMetric(after.lost, "lost")
		for _, c := range crowd {
			c.end()
		}
	}
	b.ReportMetric(0, "ns/op")
}
