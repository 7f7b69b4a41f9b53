package stripe

import (
	"crypto/tls"
	"fmt"
	"slices"
	"time"
)

// Config is what both ends need.
type Config struct {
	// Key proves who this end is. It is not in JSON of a Config, which logs have, too: to keep it, marshal the key itself.
	Key PrivateKey `json:"-"`
	// Peers are the keys of who may be at the other end.
	Peers []PublicKey
	// Links are the links of this host to use, by the name of the interface, and what for. Empty: all there are, without limits.
	Links map[string]Policy
	// Carrier is what paths are made of; the other end must have the same. Empty: TCP.
	Carrier Carrier
	// Patience is how long a connection without any path waits for one; a path that has been silent for a minute is none. 0 is three minutes.
	Patience time.Duration
	// MaxConns is how many connections a listener has at once. Each may hold up to 64 MB each way for a peer that does its
	// worst. 0 is 1000.
	MaxConns int

	used usage
}

// check reports what is wrong with a configuration, and makes what TLS needs of it.
func (cfg *Config) check() (*tls.Config, error) {
	for name, p := range cfg.Links {
		if err := p.Validate(); err != nil {
			return nil, fmt.Errorf("stripe: link %s: %w", name, err)
		}
	}
	if err := cfg.Carrier.Validate(); err != nil {
		return nil, fmt.Errorf("stripe: %w", err)
	}
	if cfg.Patience < 0 {
		return nil, fmt.Errorf("stripe: Config.Patience is %v, below 0", cfg.Patience)
	}
	if cfg.MaxConns < 0 {
		return nil, fmt.Errorf("stripe: Config.MaxConns is %d, below 0", cfg.MaxConns)
	}
	return tlsConfig(cfg)
}

// allows reports whether a link is to be used.
func (cfg *Config) allows(l Link) bool {
	_, named := cfg.Links[l.Name]
	return len(cfg.Links) == 0 || named
}

// spent reports whether a link of this host has reached its cap, by all connections together.
func (cfg *Config) spent(link string) bool {
	p := cfg.Links[link]
	return p.CapBytes > 0 && p.spent(cfg.used.of(use{own: true, link: link}).Load())
}

// links are the links of this host that are to be used.
func (cfg *Config) links() ([]Link, error) {
	all, err := Links()
	return slices.DeleteFunc(all, func(l Link) bool { return !cfg.allows(l) }), err
}
