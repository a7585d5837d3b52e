package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
)

// NoServer is for a server that does not answer.
type NoServer struct {
	URL string
	Err error
}

func (e *NoServer) Error() string {
	next := "start it with hora up, or name another with HORA_SERVER"
	var stranger x509.UnknownAuthorityError
	var other x509.HostnameError
	var invalid x509.CertificateInvalidError
	var op *net.OpError
	var timed net.Error
	switch {
	case errors.Is(e.Err, errSilent):
		next = "have it go on, or end it and start it again with hora up, which ends no job"
	case errors.As(e.Err, &stranger):
		next = fmt.Sprintf("give the whole address that hora up prints, with # and the fingerprint after it, as hora login '%s#...'; where the certificate is your own have this machine trust who signed it, with SSL_CERT_FILE for one", e.URL)
	case errors.As(e.Err, new(*anotherPin)):
		next = "compare with what hora up prints there, and log in again"
	case errors.As(e.Err, &other):
		next = "give the address with a name that the certificate has, or the server another certificate"
	case errors.As(e.Err, &invalid):
		next = "give the server another one with --tls-cert and --tls-key"
	case errors.Is(e.Err, http.ErrSchemeMismatch), errors.As(e.Err, new(tls.RecordHeaderError)):
		next = "give its address as hora up prints it"
	case errors.As(e.Err, &op) && op.Op == byProxy:
		next = "name another in HTTPS_PROXY, or the server in NO_PROXY"
	case errors.As(e.Err, &timed) && timed.Timeout():
		next = "see whether it runs there, and whether something on the way drops what is sent"
	}
	return fmt.Sprintf("reach the server at %s: %s: %s", e.URL, Plain(e.Err), next)
}

func (e *NoServer) Unwrap() error { return e.Err }

// Distrusted says whether what answers is not whom the address names, or nobody who is trusted vouches for it.
func (e *NoServer) Distrusted() bool {
	return errors.As(e.Err, new(*anotherPin)) || errors.As(e.Err, new(x509.UnknownAuthorityError))
}

// byProxy is what net/http calls the way to a proxy, and dial too.
const byProxy = "proxyconnect"

// Plain says why a connection has failed, without the names of calls and packages that it failed in.
func Plain(err error) string {
	var stranger x509.UnknownAuthorityError
	var other x509.HostnameError
	var invalid x509.CertificateInvalidError
	var pinned *anotherPin
	switch {
	case errors.As(err, &pinned):
		return pinned.Error()
	case errors.As(err, &stranger):
		return "its certificate is signed by somebody whom this machine does not trust"
	case errors.As(err, &other):
		return "its certificate is not for " + other.Host
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, new(tls.RecordHeaderError)):
		return "it speaks http, and no https"
	}
	return plainWay(err)
}

// plainWay is Plain for what comes before a certificate.
func plainWay(err error) string {
	var op *net.OpError
	var name *net.DNSError
	var timed net.Error
	at := "there"
	if errors.As(err, &op) {
		if op.Op == byProxy {
			return "reach the proxy: " + Plain(op.Err)
		}
		if op.Addr != nil {
			at = "at " + op.Addr.String()
		}
	}
	switch {
	case errors.Is(err, errSilent):
		return errSilent.Error()
	case errors.As(err, &name) && name.IsNotFound:
		return "there is no host " + name.Name
	case errors.As(err, &name):
		return fmt.Sprintf("the address of %s was not found: %s", name.Name, name.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens " + at
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no way leads to it"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.EOF):
		return "it closed the connection before it had answered"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timed) && timed.Timeout():
		return "it does not answer in time"
	}
	return err.Error()
}

// stranger words an answer that no server of hora gives.
func (c *Client) stranger(status string, body []byte) string {
	if strings.HasPrefix(c.URL, "http:") && bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
		return fmt.Sprintf("the server at %s speaks https: give the whole address that hora up prints, which begins with https:// and may end in # and a fingerprint", c.URL)
	}
	return fmt.Sprintf("%s answers %s: see whether that is a server of hora", c.URL, status)
}
