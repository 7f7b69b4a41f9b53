package traffic

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// nginxConfig is the least that serves files from a directory, in the foreground. It keeps nginx's master process, though
// one worker needs none: without it nginx 1.22 crashes on an inherited socket. The directory is root's, hence the user.
func nginxConfig(dir string, listen netip.AddrPort) string {
	return fmt.Sprintf(`daemon off;
user root;
pid %[1]s/pid;
error_log stderr;
events { worker_connections 2100; }
http {
  access_log off;
  sendfile on;
  default_type application/octet-stream;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  server {
    listen %[2]s;
    listen unix:%[1]s/ready;
    root %[1]s/files;
  }
}
`, dir, listen)
}

// serveNginx answers GET /N with N bytes by nginx until the returned function is called. nginx inherits our listening
// socket, as it does from itself in an upgrade (variable NGINX): so it has the protocol and the congestion control asked
// for, and connections are accepted from the start. The files are sparse and, in the guest, in memory: they occupy nothing.
func (r *run) serveNginx(ctx context.Context) (stop func() error, err error) {
	dir, err := os.MkdirTemp("", "plait-nginx-")
	if err != nil {
		return nil, fmt.Errorf("start nginx at %s: %w", r.ends.FromNS, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := r.layNginx(dir); err != nil {
		return nil, fmt.Errorf("start nginx at %s: %w", r.ends.FromNS, err)
	}
	socket, err := r.listenFile()
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	ctx, cancel := context.WithCancel(ctx)
	nginx := program(ctx, r.ends.FromNS, "nginx", "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf"))
	nginx.ExtraFiles = append(nginx.ExtraFiles, socket)
	nginx.Env = append(os.Environ(), "NGINX=3;")
	running, err := nginx.serve(cancel)
	if err != nil {
		return nil, err
	}
	if err := running.answers(ctx, filepath.Join(dir, "ready")); err != nil {
		_ = running.stop()
		return nil, err
	}
	return func() error {
		defer os.RemoveAll(dir)
		return running.stop()
	}, nil
}

// answers waits until the server answers HTTP requests on a Unix socket, which leaves no trace on the network.
func (s *server) answers(ctx context.Context, socket string) error {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nginx/", nil)
	if err != nil {
		return err
	}
	for waited := time.Duration(0); waited < readyLimit; waited += readyPoll {
		response, err := transport.RoundTrip(request)
		if err == nil {
			return response.Body.Close() // any status will do
		}
		if err := s.pause(ctx, readyPoll); err != nil {
			return err
		}
	}
	return fmt.Errorf("wait for nginx at %s: no answer after %s", s.ns, readyLimit)
}

// layNginx writes the configuration and one file for each length asked for, named after it.
func (r *run) layNginx(dir string) error {
	config := nginxConfig(dir, netip.AddrPortFrom(r.listenAddr(), r.ends.Port))
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o644); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o755); err != nil {
		return err
	}
	for _, bytes := range shares(r.app.Bytes, max(r.app.Connections, 1)) {
		name := filepath.Join(dir, "files", strconv.FormatInt(bytes, 10))
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			return err
		}
		if err := os.Truncate(name, bytes); err != nil {
			return err
		}
	}
	return nil
}
