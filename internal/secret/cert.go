package secret

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Certificate is a process's own, made at start and never stored. Its hash
// travels in the proofs, so a peer trusts it because of the secret alone.
type Certificate struct {
	Hash [sha256.Size]byte
	pair tls.Certificate
}

// NewCertificate makes a key and a certificate for it.
func NewCertificate() (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "hora"},
		NotBefore:    now.Add(-24 * time.Hour), // clocks of hosts differ
		NotAfter:     now.Add(10 * 365 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return &Certificate{
		Hash: sha256.Sum256(der),
		pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
	}, nil
}

// TLS is the configuration, for either end, of a connection whose other end has
// proved the certificate hash peer. It accepts that one certificate only.
func (c *Certificate) TLS(peer [sha256.Size]byte) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{c.pair},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		// There is no authority to ask: the hash was proved under the secret.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || sha256.Sum256(s.PeerCertificates[0].Raw) != peer {
				return errors.New("start TLS: the certificate is not the one that was proved")
			}
			return nil
		},
	}
}

// Seal goes on in TLS on a connection whose other end has proved the secret and a certificate, which peer names. The
// connection closes at once, without TLS's farewell: what is said on it tells itself where it ends, and a farewell to a
// host that is cut off would be waited for.
func (c *Certificate) Seal(ctx context.Context, conn net.Conn, peer Identity, client bool) (net.Conn, error) {
	t := tls.Server(conn, c.TLS(peer.Cert))
	if client {
		t = tls.Client(conn, c.TLS(peer.Cert))
	}
	_ = conn.SetDeadline(time.Now().Add(ProofTimeout))
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start TLS: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	return sealed{t}, nil
}

type sealed struct{ *tls.Conn }

func (s sealed) Close() error { return s.NetConn().Close() }
