package cp

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/ssh/sshtest"
)

// All links are away, so ssh gives up, as it does with keepalives. The copy goes on when one is back.
func TestHostOutlivesSSH(t *testing.T) {
	away := 25 * time.Second
	if rung.Full() {
		away = 62 * time.Second
	}
	for name, c := range map[string]struct {
		over        stripe.Carrier
		leave, back string // of a link %
	}{
		"down":         {stripe.TCP, "link set % down", "link set % up"},
		"silent":       {stripe.TCP, "neigh replace 10.79.*.2 lladdr 02:00:00:00:00:01 dev %", "neigh del 10.79.*.2 dev %"},
		"silent, QUIC": {stripe.QUIC, "neigh replace 10.79.*.2 lladdr 02:00:00:00:00:01 dev %", "neigh del 10.79.*.2 dev %"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosts(t, "20mbit")
			h.run("ip", "netns", "exec", h.far, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1") // otherwise n0 leads to f1's address, too
			t.Setenv("CP_TEST_CARRIER", string(c.over))
			command, _, cut := sshtest.Fragile(t, "ip netns exec "+h.far)
			h.ssh = strings.Join(command, " ")
			dir := t.TempDir()
			random(t, filepath.Join(dir, "file"), 10e6)
			do := func(what string, i string) {
				h.run("ip", append([]string{"-n", h.near}, strings.Fields(strings.NewReplacer("%", "n"+i, "*", i).Replace(what))...)...)
			}
			var out bytes.Buffer
			cmd := h.start(&out, filepath.Join(dir, "file"), "host:"+dir+"/copy")
			time.Sleep(time.Second)
			do(c.leave, "0")
			do(c.leave, "1")
			cut()
			time.Sleep(away)
			do(c.back, "0")
			start := time.Now()
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			t.Logf("ended %v after a link was back", time.Since(start))
			want, _ := os.ReadFile(filepath.Join(dir, "file"))
			if got, err := os.ReadFile(filepath.Join(dir, "copy")); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d, or others: %v", len(got), len(want), err)
			}
		})
	}
}
