package secret

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"hora/internal/wire"
)

// Conn is what a proof needs of a connection; every net.Conn is one.
type Conn interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
}

// ProofTimeout bounds a proof whose caller sets no deadline.
const ProofTimeout = 10 * time.Second

// ErrProof says that the other side does not know the secret.
var ErrProof = errors.New("the other side did not prove the job's secret; give every process of the job the same HORA_SECRET_FILE")

// VersionError says that the two sides speak different versions.
type VersionError struct {
	Mine, Theirs byte
	Host, Peer   string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("prove secret: %s speaks hora protocol version %d and %s speaks version %d; install the same hora on both",
		e.Host, e.Mine, e.Peer, e.Theirs)
}

// RefusedError says why a peer that knows the secret does not want this connection.
type RefusedError struct{ Peer, Reason string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("prove secret: %s refuses: %s", e.Peer, e.Reason)
}

// errWordless is of who has only looked whether somebody listens, as launchers and monitors do: nothing was refused.
var errWordless = errors.New("closed the connection without a word")

const (
	labelClient = "hora proof of client v1"
	labelServer = "hora proof of server v1"
)

// proof is HMAC-SHA256 over the label and everything both sides have said.
func proof(s Secret, label string, said ...[]byte) []byte {
	m := hmac.New(sha256.New, s[:])
	m.Write([]byte(label))
	for _, p := range said {
		m.Write(p) // every part has a fixed length
	}
	return m.Sum(nil)
}

// Client proves the secret to the server at the other end and has it prove the
// same. me says who speaks and who is meant; the server's Identity must Match
// it. An error closes conn. On success the connection's deadline is cleared and
// no byte beyond the proof has been read.
func Client(conn Conn, s Secret, me Identity, deadline time.Time) (Identity, error) {
	peer, err := client(conn, s, me, deadline)
	if err != nil {
		conn.Close()
		return Identity{}, err
	}
	return peer, nil
}

func client(conn Conn, s Secret, me Identity, deadline time.Time) (Identity, error) {
	if err := start(conn, s, deadline); err != nil {
		return Identity{}, err
	}
	mine := hello()
	if _, err := conn.Write(mine); err != nil {
		return Identity{}, fmt.Errorf("prove secret to %s: %w", remote(conn), err)
	}
	theirs, err := readHello(conn, me.Host)
	if err != nil {
		return Identity{}, err
	}
	myCard := card{id: me}.encode()
	out := append(myCard[:len(myCard):len(myCard)], proof(s, labelClient, mine, theirs, myCard[:])...)
	if _, err := conn.Write(out); err != nil {
		return Identity{}, fmt.Errorf("prove secret to %s: %w", remote(conn), err)
	}
	reply := make([]byte, cardBytes+sha256.Size)
	if _, err := io.ReadFull(conn, reply); err != nil {
		if closed(err) {
			return Identity{}, fmt.Errorf("prove secret: %s closed the connection: %w", remote(conn), ErrProof)
		}
		return Identity{}, fmt.Errorf("prove secret: wait for %s: %w", remote(conn), err)
	}
	want := proof(s, labelServer, mine, theirs, myCard[:], reply[:cardBytes])
	if !hmac.Equal(want, reply[cardBytes:]) {
		return Identity{}, fmt.Errorf("prove secret: %s: %w", remote(conn), ErrProof)
	}
	c, err := decodeCard(reply[:cardBytes])
	if err != nil {
		return Identity{}, fmt.Errorf("prove secret: %s: %w", remote(conn), err)
	}
	if c.reason != "" {
		return Identity{}, &RefusedError{Peer: remote(conn), Reason: c.reason}
	}
	if err := Match(me, c.id); err != nil {
		return Identity{}, fmt.Errorf("prove secret: %s: %w", remote(conn), err)
	}
	return c.id, conn.SetDeadline(time.Time{})
}

// Server has the client at the other end prove the secret and proves the same.
// accept judges the client, which has proved its identity by then, and returns
// the identity to answer with; its error is told to the client. host is this
// host's name, for error texts. An error closes conn.
func Server(conn Conn, s Secret, host string, accept func(Identity) (Identity, error), deadline time.Time) (Identity,
	error,
) {
	peer, err := server(conn, s, host, accept, deadline)
	if err != nil {
		conn.Close()
		return Identity{}, err
	}
	return peer, nil
}

// Expect accepts who matches me.
func Expect(me Identity) func(Identity) (Identity, error) {
	return func(peer Identity) (Identity, error) { return me, Match(me, peer) }
}

func server(conn Conn, s Secret, host string, accept func(Identity) (Identity, error), deadline time.Time) (Identity,
	error,
) {
	if err := start(conn, s, deadline); err != nil {
		return Identity{}, err
	}
	theirs, err := readHello(conn, host)
	var version *VersionError
	if err != nil && !errors.As(err, &version) {
		return Identity{}, err // a stranger hears nothing from us
	}
	mine := hello()
	if _, werr := conn.Write(mine); werr != nil && err == nil {
		err = fmt.Errorf("prove secret to %s: %w", remote(conn), werr)
	}
	if err != nil {
		return Identity{}, err
	}
	claim := make([]byte, cardBytes+sha256.Size)
	if _, err := io.ReadFull(conn, claim); err != nil {
		return Identity{}, fmt.Errorf("prove secret: wait for %s: %w", remote(conn), err)
	}
	if !hmac.Equal(proof(s, labelClient, theirs, mine, claim[:cardBytes]), claim[cardBytes:]) {
		return Identity{}, fmt.Errorf("prove secret: %s: %w", remote(conn), ErrProof)
	}
	c, err := decodeCard(claim[:cardBytes])
	if err != nil {
		return Identity{}, fmt.Errorf("prove secret: %s: %w", remote(conn), err)
	}
	me, refusal := accept(c.id)
	answer := card{id: me}
	if refusal != nil {
		answer.reason = fit(refusal.Error(), maxReason)
		if answer.reason == "" {
			answer.reason = "no reason given"
		}
	}
	myCard := answer.encode()
	out := append(myCard[:len(myCard):len(myCard)], proof(s, labelServer, theirs, mine, claim[:cardBytes],
		myCard[:])...)
	if _, err := conn.Write(out); err != nil {
		return Identity{}, fmt.Errorf("prove secret to %s: %w", remote(conn), err)
	}
	if refusal != nil {
		return Identity{}, fmt.Errorf("prove secret: refused rank %d on %s: %w", c.id.Rank, c.id.Host, refusal)
	}
	return c.id, conn.SetDeadline(time.Time{})
}

func start(conn Conn, s Secret, deadline time.Time) error {
	if s.IsZero() {
		return errors.New("prove secret: this process has none; set HORA_SECRET_FILE")
	}
	if deadline.IsZero() {
		deadline = time.Now().Add(ProofTimeout)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("prove secret: %w", err)
	}
	return nil
}

func hello() []byte {
	h := wire.Hello{Version: wire.Version}
	rand.Read(h.Nonce[:])
	return wire.AppendHello(make([]byte, 0, wire.HelloBytes), h)
}

// readHello reads the other side's hello. The bytes are returned with a
// *VersionError too, since the other side has a right to our hello then.
func readHello(conn Conn, host string) ([]byte, error) {
	b := make([]byte, wire.HelloBytes)
	_, err := io.ReadFull(conn, b[:len(wire.Magic)])
	if err == io.EOF {
		return nil, fmt.Errorf("prove secret: %s %w", remote(conn), errWordless)
	}
	if err == nil {
		err = wire.CheckMagic(b)
	}
	if err == nil {
		_, err = io.ReadFull(conn, b[len(wire.Magic):])
	}
	if err != nil {
		return nil, fmt.Errorf("prove secret: hello of %s: %w", remote(conn), err)
	}
	h, err := wire.ParseHello(b)
	if err != nil {
		return nil, fmt.Errorf("prove secret: hello of %s: %w", remote(conn), err)
	}
	if h.Version != wire.Version {
		if host == "" {
			host = "this host"
		}
		return b, &VersionError{Mine: wire.Version, Theirs: h.Version, Host: host, Peer: remote(conn)}
	}
	return b, nil
}

// closed says that the peer hung up, which is how a server treats a wrong proof.
func closed(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Timeout() {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// CutOff reports whether a client's proof ended because the other side closed the connection: by a wrong secret, or
// because more strangers came than it hears at once. Only trying again tells which.
func CutOff(err error) bool {
	return errors.Is(err, ErrProof) || errors.Is(err, errWordless) || closed(err)
}

func remote(conn Conn) string {
	if c, ok := conn.(net.Conn); ok && c.RemoteAddr() != nil {
		if a := c.RemoteAddr().String(); a != "" && a != "@" {
			return a
		}
	}
	return "the other side"
}
