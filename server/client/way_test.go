package client

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestALinkGoesByTheProxy as all other calls do: one that is there, one that refuses, and one that is none.
func TestALinkGoesByTheProxy(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		line, _ := both.ReadString('\n')
		_, _ = io.WriteString(conn, "heard "+line)
	}))
	defer server.Close()
	target := strings.TrimPrefix(server.URL, "https://")
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization")
		if r.Header.Get("Proxy-Authorization") == "" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		there, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer there.Close()
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, both) }()
		_, _ = io.Copy(conn, there)
	}))
	defer proxy.Close()

	c := New(server.URL+"#"+Fingerprint(server.Certificate().Raw), "token")
	by := func(text string) {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c.proxy = http.ProxyURL(u)
	}
	by(strings.Replace(proxy.URL, "http://", "http://me:pass@", 1))
	conn, in, err := c.Upgrade(t.Context(), "/node", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "this\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := in.ReadString('\n'); line != "heard this\n" {
		t.Errorf("it said %q, %v", line, err)
	}
	if got := <-asked; got != "CONNECT "+target+" Basic bWU6cGFzcw==" {
		t.Errorf("the proxy was asked %q", got)
	}
	for text, words := range map[string]string{
		proxy.URL:              "by the proxy " + proxy.URL + ": it answers 407",
		"socks5://127.0.0.1:1": "is of a kind that nodes do not speak",
		"http://127.0.0.1:1":   "reach the proxy: ",
	} {
		by(text)
		if _, _, err := c.Upgrade(t.Context(), "/node", "test"); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("by %s: %v", text, err)
		}
	}
}
