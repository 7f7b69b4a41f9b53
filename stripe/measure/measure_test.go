package measure

import (
	"os"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/pipe"
	"plait.dev/plait/stripe/ssh"
	"plait.dev/plait/stripe/ssh/sshtest"
)

// The test binary is also ssh and the far side, which runs nothing of what it is told.
func TestMain(m *testing.M) {
	sshtest.Main(m, func() ssh.Handler {
		return ssh.Handler{One: func(c *stripe.Conn, _ string, _ []byte) error { return pipe.Serve(c, "exit 3") }}
	})
}

// A far side that neither sends nor takes anything is no measurement of links that give nothing.
func TestCommandEnds(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Links(t.Context(), "host", ssh.Options{Command: []string{self}})
	if err == nil || !strings.Contains(err.Error(), "status 3") {
		t.Errorf("%v, %v; want that the command has ended", rows, err)
	}
}

// Why a link was not used one way is not forgotten when it is used the other way.
func TestSaw(t *testing.T) {
	var l Link
	l.saw(stripe.LinkStats{Error: "no answer"}, stripe.Policy{})
	l.saw(stripe.LinkStats{Paths: []stripe.PathStats{{RTT: time.Second}, {RTT: time.Millisecond}}}, stripe.Policy{})
	if l.Error != "no answer" || l.RTT != time.Second {
		t.Errorf("%+v", l)
	}
}

// A link that has reached its cap did not give nothing. One that leads to such a link has none itself.
func TestSawCap(t *testing.T) {
	var near, far Link
	spent := stripe.LinkStats{Paths: []stripe.PathStats{{State: stripe.Spent}}}
	near.saw(spent, stripe.Policy{CapBytes: 1 << 20})
	far.saw(spent, stripe.Policy{})
	if near.Error == "" || far.Error != "" {
		t.Errorf("%+v, %+v", near, far)
	}
}
