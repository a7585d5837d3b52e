package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// vouched makes an authority and a certificate of localhost, and of addresses, by it, with its key, as files.
func vouched(t *testing.T, until time.Time, addresses ...net.IP) (authority, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, content []byte) string {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	made := func() *ecdsa.PrivateKey {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	ca := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "the company"},
		NotBefore: until.AddDate(0, -1, 0), NotAfter: until.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "jobs"}, DNSNames: []string{"localhost"}, IPAddresses: addresses,
		NotBefore: ca.NotBefore, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caKey, leafKey := made(), made()
	caRaw, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	leafRaw, err := x509.CreateCertificate(rand.Reader, leaf, ca, leafKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyRaw, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	return write("authority.pem", "CERTIFICATE", caRaw), write("cert.pem", "CERTIFICATE", leafRaw), write("key.pem", "PRIVATE KEY", keyRaw)
}

// TestACertificateOfYourOwn: a server with it is reached by its name, without a fingerprint, by those who trust whoever
// vouches for it: commands and nodes; by nobody else, and not with one that does not do.
func TestACertificateOfYourOwn(t *testing.T) {
	s := newSite(t, 1)
	authority, cert, key := vouched(t, time.Now().AddDate(0, 1, 0))
	s.kill()
	s.more, s.extra = []string{"--tls-cert", cert, "--tls-key", key}, []string{"SSL_CERT_FILE=" + authority}
	s.up()
	if !regexp.MustCompile(`^https://localhost:\d+$`).MatchString(s.url) {
		t.Errorf("it serves at %s", s.url)
	}
	if r := s.hora("submit", "--no-code", "--follow", "echo", "over TLS"); r.code != 0 || !strings.Contains(r.out, "over TLS") {
		t.Errorf("%+v", r)
	}
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	r := s.hora("pool", "token", "lab")
	offer := regexp.MustCompile(`^HORA_TOKEN=(\S+) hora node --pool lab --server '(\S+)'\n$`).FindStringSubmatch(r.out)
	if offer == nil || offer[2] != s.url {
		t.Fatalf("%+v", r)
	}
	node := exec.Command(
		filepath.Join(s.bin, "hora"), "node", "--pool", "lab", "--name", "one", "--slots", "1", "--server", offer[2],
		"--dir", filepath.Join(t.TempDir(), "one"),
	)
	node.Env = append(s.env(), "HORA_TOKEN="+offer[1])
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		_ = node.Wait()
	})
	if r := s.hora("submit", "--no-code", "--pool", "lab", "--follow", "echo", "on a node"); r.code != 0 || !strings.Contains(r.out, "on a node") {
		t.Errorf("%+v", r)
	}
	s.extra = nil
	if r := s.hora("jobs"); r.code == 0 || !strings.Contains(r.errs, "whom this machine does not trust: give the whole address that hora up prints, with # and the fingerprint after it") {
		t.Errorf("who does not trust the authority: %+v", r)
	}
	s.extra = []string{"HORA_TOKEN=" + offer[1]}
	r = s.hora("node", "--pool", "lab", "--name", "two", "--server", offer[2], "--memory", "999TiB", "--dir", filepath.Join(t.TempDir(), "two"))
	if r.code == 0 || !strings.Contains(r.errs, "--server needs the whole address, with # and the fingerprint after it, as hora pool token lab prints it") ||
		!strings.Contains(r.errs, "hora: --memory 999TiB is more than this machine has, which is ") {
		t.Errorf("a node that does not trust the authority: %+v", r)
	}
	s.extra = []string{"SSL_CERT_FILE=" + authority}
	certificatesThatDoNotDo(t, s, cert, key)
}

func certificatesThatDoNotDo(t *testing.T, s *site, cert, key string) {
	t.Helper()
	_, old, oldKey := vouched(t, time.Now().AddDate(0, 0, -1))
	for _, c := range []struct {
		flags []string
		says  string
	}{
		{[]string{"--tls-cert", cert}, "--tls-cert and --tls-key belong together"},
		{[]string{"--tls-cert", cert, "--tls-key", oldKey}, "private key does not match public key"},
		{[]string{"--tls-cert", key, "--tls-key", cert}, "give two files in PEM"},
		{[]string{"--tls-cert", old, "--tls-key", oldKey}, "the certificate has expired on"},
		{
			[]string{"--tls-cert", cert, "--tls-key", key, "--listen", "127.0.0.2"},
			"the certificate is for localhost, and none of that is where the server listens, on 127.0.0.2: give a certificate for that",
		},
	} {
		up := exec.Command(filepath.Join(s.bin, "hora"), append([]string{"up", "--dir", t.TempDir(), "--port", "0"}, c.flags...)...)
		var said bytes.Buffer
		up.Env, up.Stderr, up.Stdout = s.env(), &said, &said
		late := time.AfterFunc(patience, func() { _ = up.Process.Kill() })
		err := up.Run()
		if text := said.String(); err == nil || !strings.Contains(text, c.says) || strings.Count(text, "\n") != 1 {
			t.Errorf("%v: %v, %q and not one line with %q", c.flags, err, text, c.says)
		}
		late.Stop()
	}
}

// TestTheAddressThatACertificateIsFor: what a server says of itself is what of its certificate leads to where it
// listens.
func TestTheAddressThatACertificateIsFor(t *testing.T) {
	t.Parallel()
	there := net.IPv4(127, 0, 0, 2)
	authority, cert, key := vouched(t, time.Now().AddDate(0, 1, 0), there)
	s := newSite(t, 1)
	s.kill()
	s.more, s.extra = []string{"--tls-cert", cert, "--tls-key", key, "--listen", there.String()}, []string{"SSL_CERT_FILE=" + authority}
	s.up()
	if !strings.HasPrefix(s.url, "https://127.0.0.2:") {
		t.Errorf("it serves at %s", s.url)
	}
	if r := s.hora("jobs"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	leaf := func(names []string, addresses ...string) *x509.Certificate {
		c := &x509.Certificate{DNSNames: names}
		for _, a := range addresses {
			c.IPAddresses = append(c.IPAddresses, net.ParseIP(a))
		}
		return c
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	short, _, _ := strings.Cut(host, ".")
	look := func(ctx context.Context, network, name string) ([]net.IP, error) {
		if name == "node1.invalid" { // as Debian's list of hosts has a machine's own name
			return []net.IP{net.IPv4(127, 0, 1, 1)}, nil
		}
		return net.DefaultResolver.LookupIP(ctx, network, name)
	}
	for _, c := range []struct {
		on, host, warns string
		leaf            *x509.Certificate
	}{
		{"0.0.0.0", "node1.invalid", "", leaf([]string{"node1.invalid"})},
		{"127.0.0.3", "node1.invalid", "does not lead to 127.0.0.3 from here", leaf([]string{"node1.invalid"})},
		{"127.0.0.1", "localhost", "", leaf([]string{"localhost"}, "127.0.0.1")},
		{"0.0.0.0", "localhost", "", leaf([]string{"localhost"})},
		{"127.0.0.1", "203.0.113.5", "does not lead to 127.0.0.1 from here", leaf(nil, "203.0.113.5")},
		{"0.0.0.0", "jobs.invalid", "jobs.invalid, for which the certificate is, does not lead to this machine from here", leaf([]string{"localhost", "jobs.invalid"})},
		{"127.0.0.3", short + ".invalid", "does not lead to 127.0.0.3 from here", leaf([]string{"*.invalid"}, "127.0.0.1")},
		{"127.0.0.3", "", "", leaf([]string{"localhost"}, "127.0.0.1")},
		{"127.0.0.1", "", "", leaf(nil)},
	} {
		host, warning, err := hostOf(t.Context(), look, c.leaf, net.ParseIP(c.on))
		warns := strings.Contains(warning, c.warns) && (warning == "") == (c.warns == "")
		if host != c.host || !warns || (err == nil) != (host != "") {
			t.Errorf("%v %v on %s: %q, %q, %v", c.leaf.DNSNames, c.leaf.IPAddresses, c.on, host, warning, err)
		}
	}
}

// TestHandshakesThatFail are no lines of the log, whoever makes them and however many; what else net/http says is one.
func TestHandshakesThatFail(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	to := log.New(remarks{slog.New(slog.NewTextHandler(&out, nil))}, "", 0)
	to.Printf("http: TLS handshake error from %s: remote error: tls: bad certificate", "192.0.2.2:5")
	to.Print("http: panic serving")
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `level=WARN msg="http: panic serving"`) {
		t.Errorf("the log is %s", text)
	}
}
