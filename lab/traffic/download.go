package traffic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// endless is the length of a download without one: 15 TiB, 36 h at 1 Gbit/s, and less than any file system's limit.
const endless = 15 << 40

// timing is how one connection of a download came up; 0 is unknown.
type timing struct {
	connect   time.Duration // taken by connect(2)
	firstByte time.Duration // from the start of the application to the first byte of content
}

// shares divides bytes among connections, the remainder to the first ones; 0 bytes are endless for each.
func shares(bytes int64, connections int) []int64 {
	list := make([]int64, connections)
	for i := range list {
		list[i] = bytes / int64(connections)
		if int64(i) < bytes%int64(connections) {
			list[i]++
		}
		if bytes == 0 {
			list[i] = endless
		}
	}
	return list
}

// serveGo answers GET /N with N bytes until the returned function is called.
func (r *run) serveGo() (stop func() error, err error) {
	l, err := r.listen()
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n, err := strconv.ParseInt(strings.TrimPrefix(q.URL.Path, "/"), 10, 64)
		if err != nil {
			http.NotFound(w, q)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_ = send(w, 0, n) // it fails when the client has gone, which the client reports
	})}
	go func() { _ = server.Serve(l) }() // until it is closed
	return server.Close, nil
}

// url is where N bytes are had.
func (r *run) url(bytes int64) string {
	return fmt.Sprintf("http://%s/%d", netip.AddrPortFrom(r.ends.From, r.ends.Port), bytes)
}

// fetchGo downloads bytes with net/http over one connection of its own, HTTP/1.1 without compression.
func (r *run) fetchGo(ctx context.Context, bytes int64) (timing, error) {
	var t timing
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, took, err := r.dial(ctx)
			t.connect = took
			return conn, err
		},
		TLSNextProto:       map[string]func(string, *tls.Conn) http.RoundTripper{}, // no HTTP/2
		DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url(bytes), nil)
	if err != nil {
		return t, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return t, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return t, fmt.Errorf("get %s at %s: %s", request.URL, r.ends.ToNS, response.Status)
	}
	from := io.Reader(response.Body)
	if r.app.Server != "nginx" { // which serves zeros
		from = &checked{from: from}
	}
	err = r.receive(from, r.arrival(bytes, &t))
	return t, err
}

// arrival tells when the last of bytes has arrived, and notes when the first one did.
func (r *run) arrival(bytes int64, t *timing) func(time.Duration, int) bool {
	got := int64(0)
	return func(at time.Duration, n int) bool {
		if got == 0 {
			t.firstByte = at - r.start
		}
		got += int64(n)
		return got == bytes
	}
}

// fetchCurl downloads bytes with curl, which hands them over through a pipe; they are counted as they come out of it.
func (r *run) fetchCurl(ctx context.Context, bytes int64) (timing, error) {
	var t timing
	// -q: no configuration file; -g: brackets in the URL are an address.
	args := []string{"-q", "-g", "-s", "-S", "-f", "-N", "--http1.1", "--noproxy", "*", "-w", "%{stderr}%{time_connect}", "-o", "-"}
	if r.ends.To.IsValid() {
		args = append(args, "--interface", r.ends.To.String())
	}
	if r.app.Protocol == "mptcp" {
		args = append(args, "--mptcp") // curl 8.9
	}
	curl := program(ctx, r.ends.ToNS, "curl", append(args, r.url(bytes))...)
	pipe, err := curl.StdoutPipe()
	if err != nil {
		return t, fmt.Errorf("start curl in %s: %w", r.ends.ToNS, err)
	}
	if err := curl.start(); err != nil {
		return t, err
	}
	noted := r.arrival(bytes, &t)
	read := r.receive(pipe, func(at time.Duration, n int) bool { noted(at, n); return false })
	if err := curl.finish(); err != nil {
		return t, err
	}
	if s, err := strconv.ParseFloat(string(curl.stderr.kept), 64); err == nil {
		t.connect = seconds(s)
	}
	return t, read
}

// fetchAll downloads over all connections at once; the first error ends them all. The times are the slowest connection's.
func (r *run) fetchAll(ctx context.Context, fetch func(context.Context, int64) (timing, error)) (timing, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	list := shares(r.app.Bytes, max(r.app.Connections, 1))
	times := make([]timing, len(list))
	var all sync.WaitGroup
	for i, bytes := range list {
		all.Go(func() {
			t, err := fetch(ctx, bytes)
			times[i] = t
			if err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	var slowest timing
	for _, t := range times {
		slowest.connect = max(slowest.connect, t.connect)
		slowest.firstByte = max(slowest.firstByte, t.firstByte)
	}
	return slowest, context.Cause(ctx)
}

// download fetches bytes over HTTP: the receiver asks the sender.
func download(ctx context.Context, r *run) (*Outcome, error) {
	serve, fetch := r.serveGo, r.fetchGo
	if r.app.Server == "nginx" {
		serve = func() (func() error, error) { return r.serveNginx(ctx) }
	}
	if r.app.Client == "curl" {
		fetch = r.fetchCurl
	}
	if r.app.Client == "curl" && r.app.Protocol == "sctp" {
		return nil, errors.New("start download: curl does not speak SCTP: use client go")
	}
	stop, err := serve()
	r.begin()
	if err != nil && ctx.Err() != nil { // ended before its server was ready
		return r.meter.outcome(r.end()), nil
	}
	if err != nil {
		return nil, err
	}
	times, err := r.fetchAll(ctx, fetch)
	if err := errors.Join(err, stop()); err != nil && ctx.Err() == nil {
		return nil, err
	}
	end, all := r.end(), r.app.Bytes > 0 && r.meter.bytes == r.app.Bytes
	if all {
		end = r.meter.last
	}
	out := r.meter.outcome(end)
	if all {
		out.Metrics["completion_s"] = round((end - r.start).Seconds(), 6)
	}
	if times.connect > 0 {
		out.Metrics["connect_ms"] = ms(times.connect)
	}
	if times.firstByte > 0 {
		out.Metrics["first_byte_ms"] = ms(times.firstByte)
	}
	return out, nil
}
