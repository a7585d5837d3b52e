package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"hora/server/client"
)

// secured is how a server proves who it is.
type secured struct {
	config    *tls.Config
	pin       string // of its own authority; nothing with a certificate of the user's
	host      string // how others call it
	authority []byte // PEM
}

// theirs takes the user's certificate.
func theirs(cert, key string) (*secured, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w: give two files in PEM, the certificate's with those that vouch for it", err)
	}
	s := &secured{config: serverTLS(pair)}
	switch leaf := pair.Leaf; {
	case time.Now().After(leaf.NotAfter):
		return nil, fmt.Errorf("--tls-cert: the certificate has expired on %s: renew it", leaf.NotAfter.Format(time.DateOnly))
	case len(leaf.DNSNames) > 0:
		s.host = leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		s.host = leaf.IPAddresses[0].String()
	}
	return s, nil
}

func serverTLS(pair tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
}

// The authority is made once a folder. Certificates are made anew at each start: a machine's addresses change.
const (
	authorityFile    = "authority.pem"
	authorityKeyFile = "authority.key"
	authorityYears   = 20
)

// ours makes a certificate with the authority in a server's folder.
func ours(dir string, ip net.IP) (*secured, error) {
	ca, caKey, err := authority(dir)
	if err != nil {
		return nil, err
	}
	addresses, err := addressesAt(ip)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "hora server"}, DNSNames: []string{"localhost"}, IPAddresses: addresses,
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if host, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	pair := tls.Certificate{Certificate: [][]byte{der, ca.Raw}, PrivateKey: key}
	return &secured{
		config: serverTLS(pair), pin: client.Fingerprint(ca.Raw), host: addresses[0].String(),
		authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}),
	}, nil
}

func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// addressesAt are those at which a listener is reached, the best for others first.
func addressesAt(ip net.IP) ([]net.IP, error) {
	if !ip.IsUnspecified() {
		return []net.IP{ip}, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var near, far, link []net.IP
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok:
		case n.IP.IsLoopback():
			near = append(near, n.IP)
		case n.IP.IsLinkLocalUnicast():
			link = append(link, n.IP)
		case n.IP.To4() != nil:
			far = append([]net.IP{n.IP}, far...)
		default:
			far = append(far, n.IP)
		}
	}
	if all := append(append(far, near...), link...); len(all) > 0 {
		return all, nil
	}
	return nil, errors.New("this machine has no address: bring an interface up")
}

// authority reads the folder's authority, and makes it the first time.
func authority(dir string) (*x509.Certificate, crypto.Signer, error) {
	at, keyAt := filepath.Join(dir, authorityFile), filepath.Join(dir, authorityKeyFile)
	text, err := os.ReadFile(at)
	if errors.Is(err, os.ErrNotExist) {
		return makeAuthority(at, keyAt)
	}
	if err != nil {
		return nil, nil, err
	}
	damaged := func(err error) error {
		return fmt.Errorf("read the authority in %s: %w: remove %s and %s, and a new one is made, to which clients and nodes log in again", dir, err, authorityFile, authorityKeyFile)
	}
	pair, err := tls.LoadX509KeyPair(at, keyAt)
	if err != nil {
		return nil, nil, damaged(err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || len(text) == 0 || !pair.Leaf.IsCA {
		return nil, nil, damaged(errors.New("it is none"))
	}
	return pair.Leaf, signer, nil
}

func makeAuthority(at, keyAt string) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "hora authority"}, NotBefore: now.AddDate(0, 0, -1),
		NotAfter: now.AddDate(authorityYears, 0, 0), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range []struct {
		name, kind string
		content    []byte
	}{{keyAt, "PRIVATE KEY", raw}, {at, "CERTIFICATE", der}} {
		if err := os.WriteFile(
			f.name, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.content}), 0o600,
		); err != nil {
			return nil, nil, err
		}
	}
	c, err := x509.ParseCertificate(der)
	return c, key, err
}
