package client

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Fingerprint is how people and addresses write an authority's certificate.
func Fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}

// splitPin takes the fingerprint off an address: https://host:8470#FINGERPRINT.
func splitPin(address string) (bare, pin string) {
	bare, pin, _ = strings.Cut(address, "#")
	return strings.TrimSuffix(bare, "/"), strings.ToLower(pin)
}

// FileOf is the name under which a server's address and token are kept for a user; nothing for what is no address.
func FileOf(address string) string {
	bare, _ := splitPin(address)
	u, err := url.Parse(bare)
	if err != nil || u.Host == "" {
		return ""
	}
	return "server-" + strings.NewReplacer(":", "_", "[", "", "]", "").Replace(u.Host)
}

// anotherPin is for a server whose authority is not the one that its address names.
type anotherPin struct{ is, want string }

func (e *anotherPin) Error() string {
	return fmt.Sprintf("the server's authority has the fingerprint %s and not the pinned %s: somebody stands between, or it was made anew", e.is, e.want)
}

// security is what an address asks of TLS: the authority with its fingerprint and no other, else those that this
// machine trusts.
func security(pin string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	if pin == "" {
		return c
	}
	c.InsecureSkipVerify = true // in its place:
	c.VerifyConnection = func(s tls.ConnectionState) error {
		last := s.PeerCertificates[len(s.PeerCertificates)-1]
		if Fingerprint(last.Raw) != pin {
			return &anotherPin{Fingerprint(last.Raw), pin}
		}
		roots := x509.NewCertPool()
		roots.AddCert(last)
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots})
		return err
	}
	return c
}

// CheckAddress refuses what would send a token where anybody can read it.
func CheckAddress(address string) error {
	bare, pin := splitPin(address)
	u, err := url.Parse(bare)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is no address: write it as https://HOST:PORT#FINGERPRINT, as hora up prints it", address)
	case pin != "" && (len(pin) != 64 || strings.Trim(pin, "0123456789abcdef") != ""):
		return fmt.Errorf("the address ends in #%s, which is no fingerprint: copy the 64 letters and digits that hora up prints", pin)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%s is not encrypted, and the token would go in clear: give the https:// address that hora up --listen prints", bare)
	}
	return nil
}

// Upgrade calls a path and keeps the connection, over which both sides then say what they like.
func (c *Client) Upgrade(ctx context.Context, path, protocol string) (net.Conn, *bufio.Reader, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, nil, err
	}
	conn, err := c.dial(ctx, u)
	if err != nil {
		return nil, nil, &NoServer{c.URL, err}
	}
	if u.Scheme == "https" {
		config := security(c.pin)
		config.ServerName = u.Hostname()
		secured := tls.Client(conn, config)
		shaken, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := secured.HandshakeContext(shaken)
		cancel()
		if err != nil {
			conn.Close()
			return nil, nil, &NoServer{c.URL, err}
		}
		conn = secured
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "GET /api/v1%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", path, u.Host, c.Token, protocol)
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		conn.Close()
		return nil, nil, &NoServer{c.URL, err}
	}
	if r.StatusCode != http.StatusSwitchingProtocols {
		defer conn.Close()
		f := &Fault{Status: r.StatusCode, Title: r.Status}
		b, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if json.Unmarshal(b, f) != nil || f.Detail == "" {
			f.Detail = c.stranger(r.Status, b)
		}
		return nil, nil, f
	}
	_ = conn.SetDeadline(time.Time{})
	if ctx.Err() != nil {
		conn.Close()
		return nil, nil, errors.Join(ctx.Err())
	}
	return conn, in, nil
}

// Pool is a kind of nodes.
type Pool struct {
	Name     string   `json:"name" maxLength:"60" pattern:"^[a-z0-9][a-z0-9-]*$" patternDescription:"a pool's name: write it with a-z, 0-9 and -, as in lab-2"`
	Provider string   `json:"provider" enum:"static,local,command" doc:"static: machines that run hora node; local: processes of the server's machine; command: what the three commands make"`
	Min      int      `json:"min,omitempty" minimum:"0" maximum:"10000" doc:"nodes that stay while they are idle"`
	Max      int      `json:"max,omitempty" minimum:"0" maximum:"10000" doc:"nodes that there may be"`
	Idle     float64  `json:"idle,omitempty" minimum:"0" doc:"seconds after which an idle node beyond min is ended"`
	Within   float64  `json:"within,omitempty" minimum:"0" doc:"seconds in which a node that was made must come; 10 minutes where it says nothing"`
	Node     NodeSize `json:"node,omitempty"`
	Projects []string `json:"projects,omitempty" maxItems:"1000" doc:"whose jobs may go there; everybody's where it names none"`
	Create   string   `json:"create,omitempty" maxLength:"4000" doc:"shell command that makes the node HORA_NODE, which then runs hora node"`
	Delete   string   `json:"delete,omitempty" maxLength:"4000" doc:"shell command that ends the node HORA_NODE"`
	List     string   `json:"list,omitempty" maxLength:"4000" doc:"shell command that writes the names of the nodes there are, a line each"`
	Ready    int      `json:"ready,omitempty" doc:"nodes that are there; the server says it"`
	Starting int      `json:"starting,omitempty" doc:"nodes that are being made; the server says it"`
	Warning  string   `json:"warning,omitempty" doc:"what is odd about it; the server says it"`
}

// NodeSize is what each node of a pool has.
type NodeSize struct {
	Cores  int   `json:"cores,omitempty" minimum:"0" maximum:"65536"`
	Memory int64 `json:"memory,omitempty" minimum:"0"`
	GPUs   int   `json:"gpus,omitempty" minimum:"0" maximum:"1024"`
}

// JoinToken lets machines join a pool.
type JoinToken struct {
	Token   string    `json:"token"`
	Pool    string    `json:"pool"`
	Server  string    `json:"server" doc:"the address for hora node, with the authority's fingerprint"`
	Expires time.Time `json:"expires"`
}

// Pools lists the pools.
func (c *Client) Pools(ctx context.Context) (all []Pool, err error) {
	return all, c.call(ctx, "GET", "/pools", nil, nil, &all)
}

// AddPool adds a pool, or changes one.
func (c *Client) AddPool(ctx context.Context, p Pool) (is Pool, err error) {
	return is, c.call(ctx, "PUT", "/pools/"+url.PathEscape(p.Name), nil, p, &is)
}

// RemovePool removes one that no job uses.
func (c *Client) RemovePool(ctx context.Context, name string) error {
	return c.call(ctx, "DELETE", "/pools/"+url.PathEscape(name), nil, nil, nil)
}

// JoinToken makes a token with which machines may join a pool for some time.
func (c *Client) JoinToken(ctx context.Context, pool string, valid time.Duration) (t JoinToken, err error) {
	return t, c.call(ctx, "POST", "/pools/"+url.PathEscape(pool)+"/token", nil, map[string]float64{"seconds": valid.Seconds()}, &t)
}

// Member is a node that has joined a pool, and comes back with a token of its own.
type Member struct {
	Node   string    `json:"node"`
	Pool   string    `json:"pool"`
	Joined time.Time `json:"joined,omitzero" doc:"when it got its token, where that was noted"`
	State  string    `json:"state" enum:"ready,away,gone" doc:"gone: it has been away for longer than the server's patience"`
}

// Members lists the nodes that have tokens of their own.
func (c *Client) Members(ctx context.Context) (all []Member, err error) {
	return all, c.call(ctx, "GET", "/nodes/tokens", nil, nil, &all)
}

// RevokeNode takes back a node's token, and those with which machines may still join its pool.
func (c *Client) RevokeNode(ctx context.Context, name string) error {
	return c.call(ctx, "DELETE", "/nodes/"+url.PathEscape(name)+"/token", nil, nil, nil)
}

// Address is the server's address as New takes it.
func (c *Client) Address() string {
	if c.pin == "" {
		return c.URL
	}
	return c.URL + "#" + c.pin
}
