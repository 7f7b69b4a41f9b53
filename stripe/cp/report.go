package cp

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"plait.dev/plait/stripe"
	"plait.dev/plait/stripe/internal/printable"
)

// Reporter is told how a copy goes.
type Reporter interface {
	Problem(Problem)
	Progress(Snapshot)
	// End is called last. err is nil if everything was copied; the snapshot is empty if there was no connection.
	End(s Snapshot, err error)
}

// Snapshot is how far a copy is.
type Snapshot struct {
	Files      uint64  // settled: copied, there before, or failed
	TotalFiles uint64  // 0 as long as it is not known
	Copied     uint64  // files that were sent
	Kept       uint64  // files that were there before
	Failed     uint64  // things that could not be copied
	Bytes      int64   // content that is there now; to another host with what waits to be sent and is on its way
	TotalBytes int64   // 0 as long as it is not known
	SentBytes  int64   // content that was sent
	Seconds    float64 // since there was a connection
	Bps        float64 // bits per second now, copies included
	// SecondsLeft is how long the rest takes at that rate; 0 if that cannot be said, or nothing is left.
	SecondsLeft float64
	Links       []stripe.LinkStats
	FarLinks    []stripe.LinkStats // of the other host: what was sent to each, and received from it
}

func snapshot(c *stripe.Conn, p *Progress) Snapshot {
	s := Snapshot{Seconds: time.Since(p.started).Seconds(), Files: p.Files.Load(), Copied: p.Copied.Load(), Kept: p.Kept.Load(), Failed: p.Failures(), Bytes: p.Bytes.Load(), SentBytes: p.SentBytes.Load(), Links: c.Stats(), FarLinks: c.PeerStats()}
	if p.TotalKnown.Load() {
		s.TotalFiles, s.TotalBytes = p.TotalFiles.Load(), p.TotalBytes.Load()
	}
	for _, l := range s.Links {
		s.Bps += l.SendBps + l.ReceiveBps
	}
	s.SecondsLeft = s.left()
	return s
}

// left is how long the rest takes at the present rate, in seconds; 0 if that cannot be said.
func (s Snapshot) left() float64 {
	if s.TotalBytes <= s.Bytes || s.Bps < 1 {
		return 0
	}
	return float64(s.TotalBytes-s.Bytes) * 8 / s.Bps
}

// Text reports to people: a line that is written over, if the output is a terminal, problems, and a last line.
type Text struct {
	Out      io.Writer
	Columns  func() int               // of the terminal, as it is now; 0, or nil: it is none
	Named    map[string]stripe.Policy // links the user asked for by name
	FarNamed map[string]stripe.Policy // those of the other host
	Quiet    bool                     // problems only

	mu      sync.Mutex
	started time.Time
	told    map[string]string // what is known about a link, once it could not be used
	drawn   bool
	watched *stripe.Conn
}

// Problem implements Reporter.
func (t *Text) Problem(p Problem) { t.Say(printable.Text(p.Path + ": " + p.Why)) }

// Say tells something else, of which other hosts or programs may have written a part.
func (t *Text) Say(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line("plait: " + text)
}

// line writes one above the progress.
func (t *Text) line(text string) {
	if t.drawn {
		fmt.Fprint(t.Out, "\r\x1b[K")
		t.drawn = false
	}
	for line := range strings.SplitSeq(text, "\n") { // of several causes, one each
		fmt.Fprintln(t.Out, printable.Text(line))
	}
}

// Progress implements Reporter.
func (t *Text) Progress(s Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started.IsZero() {
		t.started = time.Now()
	}
	if time.Since(t.started) >= linkGrace {
		t.tellLinks(s, settled, false)
	}
	if t.Columns == nil || t.Quiet {
		return
	}
	columns := t.Columns()
	if columns == 0 {
		return
	}
	line := s.line(true)
	if len(line) >= columns {
		line = s.line(false)
	}
	for _, separator := range []string{" | ", ", ", " of "} { // part of a rate would be another rate
		for len(line) >= columns && strings.Contains(line, separator) {
			line = line[:strings.LastIndex(line, separator)]
		}
	}
	if len(line) >= columns {
		line = ""
	}
	fmt.Fprintf(t.Out, "\r%s\x1b[K", line)
	t.drawn = true
}

// line is the progress on one, with what each link has carried so far if there is room for that.
func (s Snapshot) line(room bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", size(s.Bytes))
	if s.TotalBytes > 0 {
		fmt.Fprintf(&b, " of %s, %d of %d files", size(s.TotalBytes), s.Files, s.TotalFiles)
	}
	fmt.Fprintf(&b, ", %s", rate(s.Bps))
	if left := time.Duration(min(s.SecondsLeft, 1e9)) * time.Second; left > 0 {
		fmt.Fprintf(&b, ", %v left", left)
	}
	for _, l := range s.Links {
		if len(l.Paths) == 0 {
			continue
		}
		fmt.Fprintf(&b, " | %s ", l.Name)
		if room {
			fmt.Fprintf(&b, "%s, ", size(int64(l.SentBytes+l.ReceivedBytes)))
		}
		b.WriteString(rate(l.SendBps + l.ReceiveBps))
	}
	return b.String()
}

// End implements Reporter.
func (t *Text) End(s Snapshot, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.Seconds == 0 {
		return
	}
	if t.Quiet { // otherwise the last line says it
		t.tellLinks(s, slices.Clone, true)
		return
	}
	var by []string
	for _, l := range s.Links {
		switch n := l.SentBytes + l.ReceivedBytes; {
		case n > 0 && l.Error != "":
			by = append(by, fmt.Sprintf("%s %s (no longer used: %s)", l.Name, size(int64(n)), l.Error))
		case n > 0:
			by = append(by, fmt.Sprintf("%s %s", l.Name, size(int64(n))))
		case l.Error != "":
			by = append(by, fmt.Sprintf("%s not used (%s)", l.Name, l.Error))
		}
	}
	rest := ""
	if s.Copied == 0 && s.SentBytes > 0 {
		rest = " of what is not complete yet"
	}
	last := fmt.Sprintf("files copied: %d (%s%s in %.1f s, %s), there before: %d, problems: %d; by link: %s", s.Copied, size(s.SentBytes), rest, s.Seconds,
		rate(float64(s.SentBytes)*8/s.Seconds), s.Kept, s.Failed, strings.Join(by, ", "))
	separator := "; far links not used: "
	for _, l := range s.FarLinks {
		if l.Error != "" {
			last, separator = last+separator+l.Name+" ("+l.Error+")", ", "
		}
	}
	t.line(last)
}

// JSON reports to programs: an object on a line for each event.
type JSON struct {
	Out io.Writer
	mu  sync.Mutex
}

func (j *JSON) write(v any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = json.NewEncoder(j.Out).Encode(v)
}

// Problem implements Reporter.
func (j *JSON) Problem(p Problem) {
	j.write(struct {
		Event string
		Problem
	}{"problem", p})
}

// Progress implements Reporter.
func (j *JSON) Progress(s Snapshot) {
	j.write(struct {
		Event string
		Snapshot
	}{"progress", lists(s)})
}

// End implements Reporter.
func (j *JSON) End(s Snapshot, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	j.write(struct {
		Event string
		Snapshot
		Error string `json:",omitempty"`
	}{"end", lists(s), text})
}

// lists makes a list of what would be null, where programs that go through it end with an error.
func lists(s Snapshot) Snapshot {
	for _, links := range []*[]stripe.LinkStats{&s.Links, &s.FarLinks} {
		*links = append([]stripe.LinkStats{}, *links...)
		for i, l := range *links {
			(*links)[i].Paths = append([]stripe.PathStats{}, l.Paths...)
		}
	}
	return s
}

// size is bytes for people.
func size(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// rate is bits per second for people.
func rate(bps float64) string {
	unit := "bit/s"
	for _, u := range []string{"kbit/s", "Mbit/s", "Gbit/s"} {
		if bps < 1000 {
			break
		}
		bps, unit = bps/1000, u
	}
	return fmt.Sprintf("%.1f %s", bps, unit)
}
