package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"plait.dev/plait/lab/netns"
)

// Link is one direction of a link whose traffic is recorded.
type Link struct {
	Name string
	// Direction is forward, from the first end to the second, backward, or to_NODE: what a LAN brings to one of its ends.
	Direction string
	// Counter has its totals.
	Counter Counter
}

// Counter says where the totals of one direction come from: from the kernel, or from an emulated link.
type Counter struct {
	// NS is the namespace of the devices.
	NS string
	// Dev is the device that transmits the packets that have passed the link.
	Dev string
	// QueueDev is the device whose root qdisc is the link's queue; "" if there is none.
	QueueDev string
	// Length is that of the link's queue if it is no qdisc; nil otherwise.
	Length func() (packets int, err error)
	// LossDev is the device whose root qdisc loses packets, EntryDev the one whose ingress qdisc drops them in a blackhole or for a queue that
	// is no qdisc; "" if there is none.
	LossDev, EntryDev string
	// Emulated gives the totals of an emulated link; the fields above are then not looked at. It must be safe to call
	// at any time from another goroutine.
	Emulated func() Totals
}

// Totals are counters since some instant, and the queue's length now.
type Totals struct {
	// Bytes that came out of the link, with link-layer headers.
	Bytes uint64
	// Packets that came out of the link.
	Packets uint64
	// Drops of packets in the link, for whatever reason.
	Drops uint64
	// QueuePackets are the packets that wait for capacity now.
	QueuePackets int
}

// Numbers of include/uapi/linux/{gen_stats.h,pkt_sched.h} and of struct rtnl_link_stats64 that x/sys/unix does not have.
const (
	tcaStatsQueue   = 3
	tcHandleRoot    = 0xffffffff
	tcHandleIngress = 0xfffffff1
	sizeofTCMsg     = 20

	linkStatTxPackets = 1 * 8
	linkStatTxBytes   = 3 * 8
	linkStatsNeeded   = 4 * 8
)

// links follows the totals of links.
type links struct {
	cfg        Config
	conns      map[string]*conn
	directions []*direction
}

// direction is one direction of a link.
type direction struct {
	link, name   string // name is Link.Direction
	read         func() (Totals, error)
	start, last  Totals
	first        int
	mbps, queue  []float64
	queueHighest int
}

func openLinks(cfg Config) (*links, error) {
	l := &links{cfg: cfg, conns: map[string]*conn{}}
	for _, link := range cfg.Links {
		read, err := l.reader(link.Counter)
		if err == nil {
			d := &direction{link: link.Name, name: link.Direction, read: read, first: -1}
			d.start, err = read()
			d.last = d.start
			l.directions = append(l.directions, d)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("count %s of link %s: %w", link.Direction, link.Name, err), l.close())
		}
	}
	return l, nil
}

// reader gives the function that reads a counter.
func (l *links) reader(c Counter) (func() (Totals, error), error) {
	if c.Emulated != nil {
		return func() (Totals, error) { return c.Emulated(), nil }, nil
	}
	if l.conns[c.NS] == nil {
		nl, err := openNetlink(c.NS, unix.NETLINK_ROUTE)
		if err != nil {
			return nil, err
		}
		l.conns[c.NS] = nl
	}
	k := &kernelCounter{conn: l.conns[c.NS], queued: c.Length}
	err := netns.Do(c.NS, func() error {
		dev, err := net.InterfaceByName(c.Dev)
		if err != nil {
			return fmt.Errorf("find device %s in %s: %w", c.Dev, c.NS, err)
		}
		k.stats = statsRequest(dev.Index)
		for _, q := range []struct {
			dev    string
			parent uint32
		}{{c.QueueDev, tcHandleRoot}, {c.LossDev, tcHandleRoot}, {c.EntryDev, tcHandleIngress}} {
			if q.dev == "" {
				continue
			}
			if dev, err = net.InterfaceByName(q.dev); err != nil {
				return fmt.Errorf("find device %s in %s: %w", q.dev, c.NS, err)
			}
			k.qdiscs = append(k.qdiscs, qdisc{qdiscRequest(dev.Index, q.parent), q.dev == c.QueueDev})
		}
		return nil
	})
	return k.read, err
}

// qdisc is one whose statistics are read.
type qdisc struct {
	request []byte
	queue   bool // its length is the link's queue
}

// kernelCounter reads the totals of devices. It allocates nothing.
type kernelCounter struct {
	conn   *conn
	stats  []byte
	qdiscs []qdisc
	queued func() (int, error) // if none of them says it
	totals Totals
	length int // of the qdisc read last
}

func (k *kernelCounter) read() (Totals, error) {
	if err := k.conn.ask(k.stats, k.parseStats); err != nil {
		return Totals{}, fmt.Errorf("read device counters: %w", err)
	}
	k.totals.Drops = 0
	for _, q := range k.qdiscs {
		if err := k.conn.ask(q.request, k.parseQdisc); err != nil {
			return Totals{}, fmt.Errorf("read queue: %w", err)
		}
		if q.queue {
			k.totals.QueuePackets = k.length
		}
	}
	if k.queued == nil {
		return k.totals, nil
	}
	var err error
	k.totals.QueuePackets, err = k.queued()
	return k.totals, err
}

// statsRequest asks for the 64-bit counters of a device (struct if_stats_msg), without the rest of what is known of it.
func statsRequest(index int) []byte {
	data := make([]byte, 12)
	binary.NativeEndian.PutUint32(data[4:], uint32(index))
	binary.NativeEndian.PutUint32(data[8:], 1<<(unix.IFLA_STATS_LINK_64-1))
	return request(unix.RTM_GETSTATS, 0, data)
}

// parseStats reads an answer to statsRequest.
func (k *kernelCounter) parseStats(msg []byte) error {
	for kind, value := range attributes(msg[min(len(msg), 12):]) {
		if kind == unix.IFLA_STATS_LINK_64 && len(value) >= linkStatsNeeded {
			k.totals.Packets = binary.NativeEndian.Uint64(value[linkStatTxPackets:])
			k.totals.Bytes = binary.NativeEndian.Uint64(value[linkStatTxBytes:])
			return nil
		}
	}
	return errors.New("no counters in the answer")
}

// qdiscRequest asks for the qdisc of a device at its root or ingress (struct tcmsg). The kernel answers as to a change, to the group of
// listeners; NLM_F_ECHO has it answer us (net/sched/sch_api.c, qdisc_get_notify).
func qdiscRequest(index int, parent uint32) []byte {
	data := make([]byte, sizeofTCMsg)
	binary.NativeEndian.PutUint32(data[4:], uint32(index))
	binary.NativeEndian.PutUint32(data[12:], parent)
	return request(unix.RTM_GETQDISC, unix.NLM_F_ECHO, data)
}

// parseQdisc reads an answer to qdiscRequest: struct gnet_stats_queue {qlen, backlog, drops, ...}.
func (k *kernelCounter) parseQdisc(msg []byte) error {
	for kind, value := range attributes(msg[min(len(msg), sizeofTCMsg):]) {
		if kind != unix.TCA_STATS2 {
			continue
		}
		for kind, value := range attributes(value) {
			if kind == tcaStatsQueue && len(value) >= 12 {
				k.length = int(binary.NativeEndian.Uint32(value))
				k.totals.Drops += uint64(binary.NativeEndian.Uint32(value[8:]))
				return nil
			}
		}
	}
	return errors.New("no queue statistics in the answer")
}

func (l *links) sample(k int, elapsed time.Duration) error {
	if !l.cfg.Measure.Links {
		return nil
	}
	for _, d := range l.directions {
		now, err := d.read()
		if err != nil {
			return fmt.Errorf("%s of link %s: %w", d.name, d.link, err)
		}
		d.record(k, now, elapsed)
	}
	return nil
}

// record adds the values of index k. Where a sample was left out, the value is repeated.
func (d *direction) record(k int, now Totals, elapsed time.Duration) {
	if d.first < 0 {
		d.first = k
	}
	rate := mbps(now.Bytes-d.last.Bytes, elapsed)
	for d.first+len(d.mbps) <= k {
		d.mbps, d.queue = append(d.mbps, rate), append(d.queue, float64(now.QueuePackets))
	}
	d.last, d.queueHighest = now, max(d.queueHighest, now.QueuePackets)
}

func (l *links) finish(_ time.Duration, out *Outcome) error {
	for _, d := range l.directions {
		end, err := d.read()
		if err != nil {
			return errors.Join(fmt.Errorf("count %s of link %s: %w", d.name, d.link, err), l.close())
		}
		out.set(d.link, d.name+"_bytes", float64(end.Bytes-d.start.Bytes))
		out.set(d.link, d.name+"_packets", float64(end.Packets-d.start.Packets))
		out.set(d.link, d.name+"_drops", float64(end.Drops-d.start.Drops))
		if d.first < 0 {
			continue
		}
		name := d.link + "." + d.name
		out.set(d.link, d.name+"_queue_max_packets", float64(d.queueHighest))
		out.Series = append(out.Series,
			l.cfg.series(name+"_mbps", "Mbit/s", "", d.first, d.mbps),
			l.cfg.series(name+"_queue_packets", "packets", "", d.first, d.queue))
	}
	return l.close()
}

func (l *links) close() error {
	var errs []error
	for _, c := range l.conns {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}
