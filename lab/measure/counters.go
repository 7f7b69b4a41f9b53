package measure

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"plait.dev/plait/lab/netns"
)

// nodeCounters are the metrics of a node: kernel counters (RFC 4022 tcp group and net/ipv4/proc.c) over the run.
var nodeCounters = []struct{ metric, table, name string }{
	{"segments_sent", "Tcp", "OutSegs"}, // retransmissions not included (net/ipv4/tcp_output.c counts them apart)
	{"segments_retransmitted", "Tcp", "RetransSegs"},
	{"fast_retransmits", "TcpExt", "TCPFastRetrans"},
	{"timeouts", "TcpExt", "TCPTimeouts"},
	{"loss_probes", "TcpExt", "TCPLossProbes"},
	// Segments that the peer's DSACKs (RFC 2883) say it already had: tcp_dsack_seen in net/ipv4/tcp_input.c. The undo
	// counters (TCPDSACKUndo, TCPFullUndo, TCPLossUndo, TCPSpuriousRTOs) count episodes, not segments, and miss
	// every episode in which only a part was sent in vain.
	{"spurious_retransmits", "TcpExt", "TCPDSACKRecvSegs"},
	{"dsacks_received", "TcpExt", "TCPDSACKRecv"},
	{"sack_recoveries", "TcpExt", "TCPSackRecovery"},
}

// counters follows the TCP counters of nodes.
type counters struct{ nodes []*nodeFiles }

// nodeFiles are /proc/net/snmp and netstat of one namespace: an open file stays in the namespace it was opened in.
type nodeFiles struct {
	node   string
	files  []*os.File
	before map[string]uint64
}

func openCounters(nodes []string) (*counters, error) {
	c := &counters{}
	for _, node := range nodes {
		n := &nodeFiles{node: node}
		c.nodes = append(c.nodes, n)
		err := netns.Do(node, func() error {
			for _, name := range []string{"snmp", "netstat"} {
				f, err := os.Open("/proc/thread-self/net/" + name)
				if err != nil {
					return err
				}
				n.files = append(n.files, f)
			}
			return nil
		})
		if err == nil {
			n.before, err = n.read()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read counters of %s: %w", node, err), c.close())
		}
	}
	return c, nil
}

// read gives all counters as "Tcp.OutSegs" -> value.
func (n *nodeFiles) read() (map[string]uint64, error) {
	values := map[string]uint64{}
	for _, f := range n.files {
		var text [64 << 10]byte // larger than either file, so that one read takes them whole
		size, err := f.ReadAt(text[:], 0)
		if size == 0 {
			return nil, err
		}
		if err := parseSNMP(string(text[:size]), values); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return values, nil
}

// parseSNMP reads pairs of lines, "Table: names" and "Table: values". Negative values (Tcp.MaxConn) are left out.
func parseSNMP(text string, values map[string]uint64) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, numbers := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		if len(names) != len(numbers) || names[0] != numbers[0] {
			return fmt.Errorf("line %d: names and values differ", i+2)
		}
		for j := 1; j < len(names); j++ {
			if v, err := strconv.ParseUint(numbers[j], 10, 64); err == nil {
				values[strings.TrimSuffix(names[0], ":")+"."+names[j]] = v
			}
		}
	}
	return nil
}

func (c *counters) finish(_ time.Duration, out *Outcome) error {
	for _, n := range c.nodes {
		after, err := n.read()
		if err != nil {
			return errors.Join(fmt.Errorf("read counters of %s: %w", n.node, err), c.close())
		}
		for _, counter := range nodeCounters {
			v, ok := after[counter.table+"."+counter.name]
			if !ok {
				return errors.Join(fmt.Errorf("read counters of %s: this kernel has no %s.%s", n.node, counter.table, counter.name), c.close())
			}
			out.set(n.node, counter.metric, float64(v-n.before[counter.table+"."+counter.name]))
		}
	}
	return c.close()
}

func (c *counters) close() error {
	var errs []error
	for _, n := range c.nodes {
		for _, f := range n.files {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
