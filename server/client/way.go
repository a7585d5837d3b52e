package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// dial opens a connection to a server's address, by the proxy that the environment names for it, as other calls go.
func (c *Client) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 5 * time.Second}
	proxy, err := c.proxy(&http.Request{URL: u})
	if err != nil {
		return nil, fmt.Errorf("read the proxy in the environment: %w", err)
	}
	if proxy == nil {
		return d.DialContext(ctx, "tcp", withPort(u))
	}
	if proxy.Scheme != "http" && proxy.Scheme != "https" {
		return nil, fmt.Errorf("the proxy %s is of a kind that nodes do not speak: name one of http:// or https:// in HTTPS_PROXY, or the server in NO_PROXY", proxy.Redacted())
	}
	conn, err := d.DialContext(ctx, "tcp", withPort(proxy))
	if err != nil {
		return nil, &net.OpError{Op: byProxy, Net: "tcp", Err: err}
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: proxy.Hostname()})
	}
	if err := ask(conn, proxy, withPort(u)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("by the proxy %s: %w", proxy.Redacted(), err)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// ask has a proxy connect to an address.
func ask(conn net.Conn, proxy *url.URL, address string) error {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := r.Write(conn); err != nil {
		return err
	}
	// The server speaks after the client, so that nothing of it is in this buffer.
	answer, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// withPort is a URL's host with its port, which may be the scheme's.
func withPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
