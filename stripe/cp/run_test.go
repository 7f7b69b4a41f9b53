package cp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plait.dev/plait/internal/rung"
	"plait.dev/plait/stripe"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args, host, sources, to string
		pull                    bool
	}{
		{"a b host:dir", "host", "a b", "dir", false},
		{"a user@host:", "user@host", "a", "", false},
		{"user@[2001:db8::1]:a:b .", "user@2001:db8::1", "a:b", ".", true},
		{"[::1]:x y", "::1", "x", "y", true},
		{"[fe80::1%eth0]:x y", "fe80::1%eth0", "x", "y", true},
		{"h:a h:b ./c:d", "h", "a b", "./c:d", true},
		{"h:~/b h:./~c .", "h", "~/b ./~c", ".", true},
		{"h:~ .", "h", "~", ".", true},
		{". b h:", "h", ". b", "", false},
		{"./me@::1:x h:y", "h", "./me@::1:x", "y", false},
		{"./::1:x h:y", "h", "./::1:x", "y", false},
	} {
		j, err := Parse(strings.Fields(c.args))
		if err != nil || j.Host != c.host || j.Pull != c.pull || !slices.Equal(j.Sources, strings.Fields(c.sources)) || j.To != c.to {
			t.Errorf("%s: %+v, %v", c.args, j, err)
		}
	}
	for args, want := range map[string]string{"a": "where to", "a b": "both on this host", "h:a g:b": "both on other hosts", "h:a g:b c": "different hosts", "a h:b c": "different hosts",
		"a:b h:": "write ./a:b", "x a:b h:": "write ./a:b", "h:~user/x .": "h:./~user/x", "x h:~user": "only ~ alone", "x me@[::1]:~user": "me@[::1]:./~user", "::1:/x .": "in brackets: [::1]:/x",
		"x user@::1:/x": "in brackets: user@[::1]:/x", "2001:db8::1:x .": "[2001:db8::1]:x", "x fe80::1%eth0:": "[fe80::1%eth0]:", "x [fe80::1%eth0]": "write [fe80::1%eth0]: for", "a/x b/x/ h:": "a/x and b/x/ would both be x in h:",
		". elsewhere/cp h:": ". and elsewhere/cp would both be cp in h:", "run.go elsewhere/x/../run.go h:": "would both be run.go", "x [2001:db8::1]": "no path: write [2001:db8::1]: for the home directory",
		"h:a/.. .": "a/..: has no name", "h:~ h:~/b d": "~: has no name here", "h:a h:./ d": "./: has no name here", "h: h:a d": ".: has no name here", "me@2001:db8::1 x": "write me@[2001:db8::1]:", "[]:x h:y": "both on other hosts"} {
		if j, err := Parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", args, j, err, want)
		}
	}
}

func TestNameOf(t *testing.T) {
	for source, want := range map[string]string{"": ".", "a/b/": "b", "~": ".", "~/": ".", "~/.": ".", "~/a": "a", "~/..": "..", "~user": "~user", "./~": "~", "a/~": "~", "a/./": "a", "./.": ".", "a/../b": "b", "a/..": "..",
		"~/a/../": "..", "/": "/", "/.": "/", "/a/..": ".."} {
		if got := nameOf(source); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// A stream says which of the links asked for it cannot use, as a copy does: after a while, or at its end if that comes sooner.
func TestWatch(t *testing.T) {
	t.Parallel()
	a, b := stripe.NewKey(), stripe.NewKey()
	l, err := stripe.Listen(&stripe.Config{Key: b, Peers: []stripe.PublicKey{a.Public()}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	links := map[string]stripe.Policy{"lo": {}, "gone0": {}}
	for what, early := range map[string]time.Duration{"long": linkGrace, "short": 0} {
		conn, err := stripe.Dial(t.Context(), &stripe.Config{Key: a, Peers: []stripe.PublicKey{b.Public()}, Links: links}, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		said, out := io.Pipe()
		text := &Text{Out: out, Named: links, started: time.Now().Add(-early)}
		ended := make(chan struct{})
		go func() { defer close(ended); text.Watch(conn); out.Close() }()
		if early == 0 {
			conn.Abort()
		}
		limit := time.AfterFunc(10*time.Second, func() { out.CloseWithError(errors.New("nothing is said")) })
		line, err := bufio.NewReader(said).ReadString('\n')
		limit.Stop()
		if !strings.HasPrefix(line, "plait: link gone0 is not used: ") {
			t.Errorf("%s: %q, %v", what, line, err)
		}
		conn.Abort()
		<-ended
	}
}

// A shell makes thousands of sources of one *.
func TestManySources(t *testing.T) {
	rung.Long(t)
	from, to := t.TempDir(), t.TempDir()
	var push, pull []string
	for i := range 3000 {
		file := filepath.Join(from, fmt.Sprint(i, strings.Repeat("-", 200)))
		write(t, file, "")
		push, pull = append(push, file), append(pull, "host:"+file)
	}
	for what, args := range map[string][]string{"push": append(push, "host:"+to+"/push/"), "pull": append(pull, to+"/pull/")} {
		cmd, _ := near(t, args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", what, err, out)
		}
		if made, err := os.ReadDir(filepath.Join(to, what)); len(made) != len(push) {
			t.Errorf("%s: %d files, %v", what, len(made), err)
		}
	}
}

// A program that reads JSON hears of the end, also when there was no connection; people hear of the error alone.
func TestEndWithoutConnection(t *testing.T) {
	job := Job{Pull: true, Host: "host", Sources: []string{".."}, To: t.TempDir()}
	var told, read strings.Builder
	if err := job.Run(t.Context(), &JSON{Out: &told}); err == nil || !strings.Contains(told.String(), `"Event":"end"`) || !strings.Contains(told.String(), `"Error":"`+err.Error()) {
		t.Errorf("%v: %s", err, told.String())
	}
	if err := job.Run(t.Context(), &Text{Out: &read}); err == nil || read.Len() > 0 {
		t.Errorf("%v: %s", err, read.String())
	}
}

// A list is never null: jq '.Links[].Paths[]' would end with an error.
func TestJSONLists(t *testing.T) {
	for _, c := range []struct {
		links []stripe.LinkStats
		want  string
	}{
		{nil, `"Links":[]`},
		{[]stripe.LinkStats{{Name: "eth0"}}, `"Paths":[]`},
	} {
		var told strings.Builder
		out := &JSON{Out: &told}
		out.Progress(Snapshot{Links: c.links})
		out.End(Snapshot{Links: c.links}, nil)
		if strings.Count(told.String(), c.want) != 2 {
			t.Errorf("%s, want %s twice", told.String(), c.want)
		}
	}
}

func TestText(t *testing.T) {
	var out strings.Builder
	columns := 80
	text := &Text{Out: &out, Columns: func() int { return columns }, Named: map[string]stripe.Policy{"wwan0": {}}}
	s := Snapshot{Files: 1, TotalFiles: 2, Bytes: 1e9, TotalBytes: 3e9, Bps: 1e9, SentBytes: 1e9, Copied: 1, Seconds: 8, Links: []stripe.LinkStats{
		{Name: "eth0", SendBps: 1e9, SentBytes: 1e9, Paths: []stripe.PathStats{{State: stripe.Working}}}, {Name: "wwan0", Error: "no route to 192.0.2.1"}}}
	s.SecondsLeft = s.left()
	text.Progress(s)
	if got, want := out.String(), "\r1.0 GB of 3.0 GB, 1 of 2 files, 1.0 Gbit/s, 16s left | eth0 1.0 GB, 1.0 Gbit/s\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	columns = 78
	text.Progress(s)
	if got, want := out.String(), "\r1.0 GB of 3.0 GB, 1 of 2 files, 1.0 Gbit/s, 16s left | eth0 1.0 Gbit/s\x1b[K"; got != want {
		t.Errorf("without room for what links carried: %q, want %q", got, want)
	}
	for columns = range 60 { // of what has no room nothing is shown: half a number would be another one
		out.Reset()
		text.Progress(s)
		whole := "1.0 GB of 3.0 GB, 1 of 2 files, 1.0 Gbit/s, 16s left | "
		if got, cut := strings.CutSuffix(strings.TrimPrefix(out.String(), "\r"), "\x1b[K"); columns > 0 && (!cut || len(got) >= columns || got != "" && !strings.HasPrefix(whole, got+", ") && !strings.HasPrefix(whole, got+" | ") && got != "1.0 GB") {
			t.Errorf("%d columns: %q", columns, got)
		}
	}
	out.Reset()
	columns = 65
	text.Progress(s)
	if got, want := out.String(), "\r1.0 GB of 3.0 GB, 1 of 2 files, 1.0 Gbit/s, 16s left\x1b[K"; got != want {
		t.Errorf("without room for a link's rate, of which a part would be another rate: %q, want %q", got, want)
	}
	out.Reset()
	columns = 10
	text.Progress(s)
	if got, want := out.String(), "\r1.0 GB\x1b[K"; got != want {
		t.Errorf("a terminal that became narrow shows %q, want %q", got, want)
	}
	columns = 120
	out.Reset()
	text.started = time.Now().Add(-linkGrace)
	text.Progress(s)
	text.Progress(s)
	if got := out.String(); strings.Count(got, "plait: link wwan0 is not used: no route to 192.0.2.1\n") != 1 {
		t.Errorf("%q", got)
	}
	out.Reset()
	s.Links[1].Error = "no route to 192.0.2.2" // another address was tried
	text.Progress(s)
	if got := out.String(); strings.Contains(got, "plait:") {
		t.Errorf("told again: %q", got)
	}
	out.Reset()
	text.End(s, nil)
	if got, want := out.String(), "\r\x1b[Kfiles copied: 1 (1.0 GB in 8.0 s, 1.0 Gbit/s), there before: 0, problems: 0; by link: eth0 1.0 GB, wwan0 not used (no route to 192.0.2.2)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	cut := s
	cut.Copied = 0
	text.End(cut, errors.New("cut off"))
	if got, want := out.String(), "files copied: 0 (1.0 GB of what is not complete yet in 8.0 s, "; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	s.FarLinks = []stripe.LinkStats{{Name: "eth0", SentBytes: 1e9}, {Name: "docker0", Error: "from eth0: no route"}, {Name: "wlan0", Error: "it is down"}}
	text.End(s, nil)
	if got, want := out.String(), "(no route to 192.0.2.2); far links not used: docker0 (from eth0: no route), wlan0 (it is down)\n"; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A link that nobody asked for, here or there, is told early, too, once it is known why, and not again in the lines before the last one.
func TestTellsLinksNobodyAskedFor(t *testing.T) {
	var out strings.Builder
	text := &Text{Out: &out, Columns: func() int { return 0 }, started: time.Now().Add(-linkGrace)}
	s := Snapshot{Seconds: 1, Links: []stripe.LinkStats{{Name: "docker0", Error: stripe.NotYet}, {Name: "eth0"}}, FarLinks: []stripe.LinkStats{{Name: "docker1", Error: "b"}}}
	text.Progress(s)
	s.Links[0].Error = "a"
	text.Progress(s)
	text.Progress(s)
	if got, want := out.String(), "plait: far link docker1 is not used: b\nplait: link docker0 is not used: a\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	text.End(s, nil)
	if got := out.String(); strings.Contains(got, "plait:") {
		t.Errorf("%q", got)
	}
	out.Reset()
	brief := &Text{Out: &out, Columns: text.Columns}
	brief.End(s, nil)
	if got := out.String(); strings.Contains(got, "plait:") || !strings.Contains(got, "docker0 not used (a)") {
		t.Errorf("%q", got)
	}
}

// With no link of this host left, what is wrong with the other host's says no more.
func TestTellsOfOneEndWhereAllLinksFail(t *testing.T) {
	var out strings.Builder
	text := &Text{Out: &out, Quiet: true, started: time.Now().Add(-linkGrace)}
	state := func(here, there string) Snapshot {
		return Snapshot{Seconds: 1, Links: []stripe.LinkStats{{Name: "eth0", SentBytes: 1, Error: here}, {Name: "wlan0", SentBytes: 1, Error: "gone"}},
			FarLinks: []stripe.LinkStats{{Name: "far0", SentBytes: 1, Error: there}}}
	}
	text.Progress(state("", ""))
	text.Progress(state("gone", "from eth0: gone"))
	text.End(state("", "from eth0: no answer"), nil)
	if got, want := out.String(), "plait: link wlan0 is not used: gone\nplait: link eth0 is not used: gone\nplait: far link far0 is not used: from eth0: no answer\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What is said of links as they come and go: those that were asked for by name, and those that have carried something.
func TestTellLinks(t *testing.T) {
	works := []stripe.PathStats{{State: stripe.Working}}
	spent := []stripe.PathStats{{State: stripe.Spent}}
	link := func(sent uint64, err string, paths []stripe.PathStats) stripe.LinkStats {
		return stripe.LinkStats{Name: "wwan0", SentBytes: sent, Error: err, Paths: paths}
	}
	for name, c := range map[string]struct {
		named bool
		links []stripe.LinkStats // one after the other; the last one is the end's
		want  string
	}{
		"never worked":              {true, []stripe.LinkStats{link(0, "a", nil), link(0, "b", nil), link(0, "a", nil)}, "wwan0 is not used: a\n"},
		"not asked for":             {false, []stripe.LinkStats{link(0, "a", nil), link(0, "a", nil)}, ""},
		"lost, not asked for":       {false, []stripe.LinkStats{link(1, "", works), link(1, "a", nil), link(1, "", works), link(2, "", nil)}, "wwan0 is not used: a\nwwan0 is used again\n"},
		"lost at the end":           {false, []stripe.LinkStats{link(1, "", works), link(1, "a", nil)}, "wwan0 is not used: a\n"},
		"an answer at the end only": {true, []stripe.LinkStats{link(0, "a", nil), link(0, "", works)}, "wwan0 is not used: a\n"},
		"not yet":                   {true, []stripe.LinkStats{link(0, stripe.NotYet, nil), link(0, "", works), link(1, "", nil)}, ""},
		"spent at the other end":    {false, []stripe.LinkStats{link(1, "", spent), link(2, "", nil)}, ""},
		"not by the end":            {true, []stripe.LinkStats{link(0, stripe.NotYet, nil), link(0, stripe.NotYet, nil)}, "wwan0 is not used: no answer yet\n"},
		"spent":                     {true, []stripe.LinkStats{link(1, "", works), link(2, "", spent), link(2, "", nil), link(2, "it has reached its cap", nil), link(2, "", nil)}, "wwan0 " + linkSpent + "\n"},
	} {
		var out strings.Builder
		named := map[string]stripe.Policy{}
		if c.named {
			named["wwan0"] = stripe.Policy{CapBytes: 1}
		}
		text := &Text{Out: &out, Named: named, Quiet: true, started: time.Now().Add(-linkGrace)}
		last := len(c.links) - 1
		for _, l := range c.links[:last] {
			text.Progress(Snapshot{Links: []stripe.LinkStats{l}})
		}
		text.End(Snapshot{Seconds: 1, Links: c.links[last:]}, nil)
		if got := strings.ReplaceAll(out.String(), "plait: link ", ""); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		out.Reset()
		far := &Text{Out: &out, FarNamed: text.Named, Quiet: true, started: text.started} // the same of the other host's
		for _, l := range c.links[:last] {
			far.Progress(Snapshot{FarLinks: []stripe.LinkStats{l}})
		}
		far.End(Snapshot{Seconds: 1, FarLinks: c.links[last:]}, nil)
		if got := strings.ReplaceAll(out.String(), "plait: far link ", ""); got != c.want {
			t.Errorf("%s of the other host: %q, want %q", name, got, c.want)
		}
	}
}

// What is told of a path there is written as the command line wants it.
func TestFarPathTold(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "gone")
	for name, args := range map[string][]string{"problem": {"me@[::1]:" + gone, t.TempDir()}, "end": {"run.go", "me@[::1]:" + gone + "/x"}} {
		cmd, _ := near(t, args...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "me@[::1]:"+gone) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
