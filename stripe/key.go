package stripe

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"slices"
	"time"
)

// PublicKey names a peer: it is an Ed25519 public key (RFC 8032). As text it is base64, 44 characters.
type PublicKey [ed25519.PublicKeySize]byte

// PrivateKey proves who this end is. Keep it secret; one made for a single transfer need not be kept at all.
type PrivateKey struct{ key ed25519.PrivateKey }

// NewKey makes a key.
func NewKey() PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // rand.Reader never fails
	}
	return PrivateKey{key}
}

// Format implements [fmt.Formatter]: a log of a Config must not tell the key.
func (PrivateKey) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "PrivateKey") }

// LogValue implements [slog.LogValuer]: as text or JSON a logger would take the key's own.
func (PrivateKey) LogValue() slog.Value { return slog.StringValue("PrivateKey") }

// Public is the key to give to peers.
func (k PrivateKey) Public() PublicKey { return PublicKey(k.key.Public().(ed25519.PublicKey)) }

func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *PublicKey) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(b) != len(k) {
		return fmt.Errorf("public key %q: not the base64 of %d bytes", text, len(k))
	}
	copy(k[:], b)
	return nil
}

// MarshalText implements [encoding.TextMarshaler], to keep a key in a file. The text is the secret.
func (k PrivateKey) MarshalText() ([]byte, error) {
	if k.key == nil {
		return nil, errNoKey
	}
	return []byte(base64.StdEncoding.EncodeToString(k.key.Seed())), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *PrivateKey) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(b) != ed25519.SeedSize {
		return fmt.Errorf("private key: not the base64 of %d bytes", ed25519.SeedSize)
	}
	k.key = ed25519.NewKeyFromSeed(b)
	return nil
}

var (
	errNoKey   = errors.New("stripe: Config.Key is not set; make one with NewKey")
	errNoPeers = errors.New("stripe: Config.Peers is empty: nobody could connect; add the peer's public key")
)

// tlsConfig lets in who has one of the peers' keys, at either end, and nobody else. Certificates are only envelopes for
// keys here: names, dates and signatures in them say nothing, so a wrong clock does no harm. TLS 1.3 alone is spoken, and no
// session is resumed, so that every path has keys of its own that are forgotten with it.
func tlsConfig(cfg *Config) (*tls.Config, error) {
	if cfg.Key.key == nil {
		return nil, errNoKey
	}
	if len(cfg.Peers) == 0 {
		return nil, errNoPeers
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, cfg.Key.key.Public(), cfg.Key.key)
	if err != nil {
		return nil, fmt.Errorf("stripe: make certificate: %w", err)
	}
	peers := slices.Clone(cfg.Peers)
	return &tls.Config{
		Certificates:                []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: cfg.Key.key}},
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  []string{"plait-stripe"},
		ClientAuth:                  tls.RequireAnyClientCert,
		InsecureSkipVerify:          true, // VerifyConnection does it
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true, // a frame is a record
		VerifyConnection: func(s tls.ConnectionState) error {
			key, err := peerKey(s)
			if err != nil {
				return err
			}
			if !slices.Contains(peers, key) {
				return fmt.Errorf("peer has the key %v, which is not one of Config.Peers", key)
			}
			return nil
		},
	}, nil
}

// peerKey is the key of the peer's certificate. The handshake has proved that the peer has its private half.
func peerKey(s tls.ConnectionState) (PublicKey, error) {
	if len(s.PeerCertificates) != 1 {
		return PublicKey{}, fmt.Errorf("peer sent %d certificates, not one", len(s.PeerCertificates))
	}
	key, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return PublicKey{}, errors.New("peer's certificate has no Ed25519 key")
	}
	return PublicKey(key), nil
}
