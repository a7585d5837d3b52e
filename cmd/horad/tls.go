package main

import (
	"context"
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
	"slices"
	"strings"
	"time"

	"hora/server/client"
)

// secured is how a server proves who it is.
type secured struct {
	config    *tls.Config
	pin       string // of its own authority; nothing with a certificate of the user's
	host      string // how others call it
	authority []byte // PEM
	warning   string // what is odd about it
}

// theirs takes the user's certificate, for a server that listens on an address.
func theirs(ctx context.Context, cert, key string, ip net.IP) (*secured, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w: give two files in PEM, the certificate's with those that vouch for it", err)
	}
	s := &secured{config: serverTLS(pair)}
	if time.Now().After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("--tls-cert: the certificate has expired on %s: renew it", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	s.host, s.warning, err = hostOf(ctx, net.DefaultResolver.LookupIP, pair.Leaf, ip)
	return s, err
}

// lookup finds the addresses of a name.
type lookup func(ctx context.Context, network, name string) ([]net.IP, error)

// lookWithin bounds looking up the names of a certificate.
const lookWithin = 3 * time.Second

// hostOf is the name or address of a certificate under which a server that listens on an address is reached. Where
// none is known to lead there one is taken that may do so from elsewhere, behind a router for one, with a warning.
func hostOf(ctx context.Context, look lookup, leaf *x509.Certificate, ip net.IP) (host, warning string, err error) {
	mine, err := addressesAt(ip)
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var all, near, far []string // near: by the loopback where there is more than that; far: perhaps from elsewhere
	for _, name := range namesOf(leaf) {
		all = append(all, name)
		switch at, elsewhere := leads(ctx, look, name, mine, ip.IsUnspecified()); {
		case at == nil && elsewhere:
			far = append(far, name)
		case at == nil:
		case at.IsLoopback() && ip.IsUnspecified():
			near = append(near, name)
		default:
			return name, "", nil
		}
	}
	where, names := "this machine", strings.Join(all, ", ")
	if !ip.IsUnspecified() {
		where = ip.String()
	}
	if len(far) > 0 {
		return far[0], fmt.Sprintf("%s, for which the certificate is, does not lead to %s from here: see that it does where clients and nodes are, or give a certificate for an address of this machine", far[0], where), nil
	}
	if len(near) > 0 {
		return near[0], "", nil
	}
	if names == "" {
		names = "no host"
	}
	return "", "", fmt.Errorf("--tls-cert: the certificate is for %s, and none of that is where the server listens, on %s: give a certificate for that, or another --listen", names, ip)
}

// namesOf are the hosts that a certificate is for: names first. Of those with a star it is this machine's own.
func namesOf(leaf *x509.Certificate) (all []string) {
	host, err := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	for _, name := range leaf.DNSNames {
		own, star := strings.CutPrefix(name, "*")
		switch {
		case !star:
		case err == nil && leaf.VerifyHostname(host) == nil:
			name = host
		default:
			name = short + own
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// leads says at which of a machine's addresses a name leads to it; else whether it may do so for others: where it is
// not known here, or leads elsewhere than to the loopback, which is everybody's own.
func leads(ctx context.Context, look lookup, name string, mine []net.IP, all bool) (at net.IP, elsewhere bool) {
	there := []net.IP{net.ParseIP(name)}
	if there[0] == nil {
		var err error
		if there, err = look(ctx, "ip", name); err != nil {
			return nil, true
		}
	}
	// A machine's own name stands beside an address of the loopback in its list of hosts (127.0.1.1 on Debian), which
	// says nothing of what it is for others.
	own := net.ParseIP(name) == nil && name != "localhost" && !strings.HasSuffix(name, ".localhost")
	for _, ip := range there {
		if slices.ContainsFunc(mine, ip.Equal) || all && ip.IsLoopback() { // all of the loopback is this machine's
			return ip, false
		}
		elsewhere = elsewhere || !ip.IsLoopback() || own
	}
	return nil, elsewhere
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
