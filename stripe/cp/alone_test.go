package cp

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/ssh/sshtest"
)

// All links are away, so ssh gives up, as it does with keepalives. The copy goes on when one is back. What can be wrong with links is tried at once, each by hosts
// of its own: most of the time is waited.
func TestHostOutlivesSSH(t *testing.T) {
	away := 25 * time.Second
	if rung.Full() {
		away = 62 * time.Second
	}
	cases := []*lonely{
		{name: "down", over: stripe.TCP, leave: "link set % down", back: "link set % up"},
		{name: "silent", over: stripe.TCP, leave: "neigh replace 10.79.*.2 lladdr 02:00:00:00:00:01 dev %", back: "neigh del 10.79.*.2 dev %"},
		{name: "silent, QUIC", over: stripe.QUIC, leave: "neigh replace 10.79.*.2 lladdr 02:00:00:00:00:01 dev %", back: "neigh del 10.79.*.2 dev %"},
	}
	for _, c := range cases {
		c.begin(t)
	}
	for _, c := range cases {
		c.h.carries("n0", 500_000) // the far side has answered, and the copy is under way
		c.do(c.leave, "0")
		c.do(c.leave, "1")
		c.cut()
	}
	time.Sleep(away)
	for _, c := range cases {
		c.do(c.back, "0")
	}
	start := time.Now()
	for _, c := range cases {
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, c.out.String())
			continue
		}
		t.Logf("%s: ended %v at most after a link was back", c.name, time.Since(start))
		if want, got := digest(t, filepath.Join(c.dir, "file")), digest(t, filepath.Join(c.dir, "copy")); want != got {
			t.Errorf("%s: other bytes came", c.name)
		}
	}
}

// lonely is a copy that loses ssh and all its links.
type lonely struct {
	name        string
	over        stripe.Carrier
	leave, back string // of a link %

	h   *hosts
	dir string
	cmd *exec.Cmd
	out bytes.Buffer
	cut func()
}

func (c *lonely) begin(t *testing.T) {
	c.h = newHosts(t, "20mbit")
	c.h.run("ip", "netns", "exec", c.h.far, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1") // otherwise n0 leads to f1's address, too
	t.Setenv("CP_TEST_CARRIER", string(c.over))
	var command []string
	command, _, c.cut = sshtest.Fragile(t, "ip netns exec "+c.h.far)
	c.h.ssh = strings.Join(command, " ")
	c.dir = t.TempDir()
	random(t, filepath.Join(c.dir, "file"), 20e6)
	c.cmd = c.h.start(&c.out, filepath.Join(c.dir, "file"), "host:"+c.dir+"/copy")
}

func (c *lonely) do(what string, i string) {
	c.h.run("ip", append([]string{"-n", c.h.near}, strings.Fields(strings.NewReplacer("%", "n"+i, "*", i).Replace(what))...)...)
}

// digest reads a file a piece at a time, for the reason random writes it so.
func digest(t *testing.T, file string) [sha256.Size]byte {
	t.Helper()
	sum := sha256.New()
	f, err := os.Open(file)
	if err == nil {
		defer f.Close()
		_, err = io.Copy(sum, f)
	}
	if err != nil {
		t.Error(err)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}
