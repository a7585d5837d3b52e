package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hora/cmd/console"
	"hora/job/schedule"
	"hora/server"
	"hora/server/client"
	"hora/server/fleet"
	"hora/server/node"
	"hora/server/snapshot"
	"hora/server/store"
)

type serving struct {
	dir, listen, hora, version, config string
	port, slots                        int
	cert, key, runAs                   string
	patience                           time.Duration
}

func serveCommand(out, errs io.Writer) *cobra.Command {
	v := &serving{}
	c := &cobra.Command{
		Use: "serve", Short: "serve a folder", Args: console.Takes,
		RunE: func(c *cobra.Command, _ []string) error { return v.serve(c.Context(), out, errs) },
	}
	f := c.Flags()
	f.StringVar(&v.dir, "dir", "", "the server's folder")
	f.StringVar(&v.listen, "listen", "127.0.0.1", "the address to serve on")
	f.IntVar(&v.port, "port", 8470, "the port; 0 takes a free one")
	f.IntVar(&v.slots, "slots", 1, "how many processes run on this machine at once")
	f.StringVar(&v.hora, "hora", "", "the hora program that keeps jobs")
	f.StringVar(&v.version, "version-of-hora", "", "what the hora program is")
	f.StringVar(&v.cert, "tls-cert", "", "the user's certificate")
	f.StringVar(&v.key, "tls-key", "", "its key")
	f.StringVar(&v.runAs, "run-as", "", "whom jobs on this machine run as")
	f.DurationVar(&v.patience, "patience", time.Minute, "how long a node may be silent before what it runs is lost")
	f.StringVar(&v.config, "config", "", "the user's folder in which address and token are kept for clients")
	return c
}

func (v *serving) serve(ctx context.Context, out, errs io.Writer) error {
	if v.dir == "" || v.hora == "" {
		return usageError{errors.New("--dir and --hora are needed: start the server with hora up, which gives them")}
	}
	log := slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelInfo}))
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM) // who has read that it serves may send one at once
	st, err := store.Open(v.dir)
	if errors.Is(err, store.ErrTaken) {
		return v.taken()
	}
	if err != nil {
		return err
	}
	defer st.Close()
	if err := snapshot.StayBehind(v.dir); err != nil {
		return err
	}
	token, err := tokenOf(v.dir)
	if err != nil {
		return err
	}
	l, at, err := v.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := writeFile(filepath.Join(v.dir, addressFile), at.url+"\n"); err != nil {
		return err
	}
	who, err := v.user()
	if err != nil {
		return err
	}
	environ := node.Inherited(os.Environ(), v.hora)
	s, err := v.start(ctx, st, &maker{v.hora, v.dir, v.runAs, environ, at.url}, who, token, log)
	if err != nil {
		return err
	}
	defer s.Close()
	end, now := make(chan bool, 1), false
	h := &http.Server{
		Handler: s.Handler(server.Settings{
			Version: v.version, Token: token, Address: at.url, Authority: at.authority,
			Down: func(now bool) { end <- now },
		}),
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: stdlog.New(remarks{log}, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	if v.config != "" {
		if err := announce(v.config, at.url, token); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "hora: serving %s\n", at.url)
	fmt.Fprintln(out, v.forBrowsers(out, at.url, token))
	if at.warning != "" {
		fmt.Fprintln(errs, "hora:", at.warning)
	}
	select {
	case err = <-failed:
	case now = <-end:
	case <-signals:
	}
	s.EndIdle()
	s.Close() // followers are told first
	down, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if h.Shutdown(down) != nil {
		h.Close()
	}
	if now {
		fmt.Fprintln(out, "hora: the server has ended, and the jobs that ran with it; those that waited are kept, and queue again with the next hora up")
	} else {
		fmt.Fprintln(out, "hora: the server has ended; jobs that run go on, and hora up takes them up again")
	}
	return err
}

// remarks takes what net/http says of connections. A handshake that came to nothing is the other side's matter, which
// was told; it may come as often as anybody likes.
type remarks struct{ log *slog.Logger }

func (r remarks) Write(text []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(text, []byte("http: TLS handshake error")) {
		level = slog.LevelDebug
	}
	r.log.Log(context.Background(), level, strings.TrimSpace(string(text)))
	return len(text), nil
}

// taken says whose the folder is: hora down alone would end the server that this user has started last.
func (v *serving) taken() error {
	at, err := os.ReadFile(filepath.Join(v.dir, addressFile))
	if err != nil {
		return fmt.Errorf("open %s: another server has this folder open: end it, or give another --dir", v.dir)
	}
	bare, _, _ := strings.Cut(strings.TrimSpace(string(at)), "#")
	return fmt.Errorf("open %s: %w, at %s: HORA_SERVER=%s hora down ends it; or give another --dir", v.dir, store.ErrTaken, bare, bare)
}

// forBrowsers is the line that lets a browser in. The token stands in it where it goes to a terminal alone: what is
// written elsewhere, as by a service into the system's journal, is read by others and kept.
func (v *serving) forBrowsers(out io.Writer, address, token string) string {
	bare, _, _ := strings.Cut(address, "#")
	if console.Width(out) > 0 {
		return fmt.Sprintf("hora: in a browser: %s/?token=%s", bare, token)
	}
	return fmt.Sprintf("hora: in a browser: %s, with the token in %s", bare, filepath.Join(v.dir, tokenFile))
}

// user is whom jobs on this machine run as; nil for the server's own user. The folders of jobs are made for that user.
func (v *serving) user() (who *node.User, err error) {
	if v.runAs != "" {
		if who, err = node.FindUser(v.runAs); err != nil {
			return nil, usageError{err}
		}
		nodes := filepath.Join(v.dir, nodesFolder)
		if err := errors.Join(os.MkdirAll(nodes, 0o711), os.Chmod(nodes, 0o711)); err != nil {
			return nil, err
		}
	}
	if err := who.Own(v.dir, v.hora); err != nil {
		return nil, usageError{err}
	}
	return who, nil
}

// place is where a server is reached.
type place struct {
	url       string // with the authority's fingerprint
	authority []byte
	warning   string // what is odd about its certificate
}

// open listens: in clear on the loopback alone.
func (v *serving) open(ctx context.Context) (net.Listener, place, error) {
	var none place
	ip := net.ParseIP(v.listen)
	if v.listen == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if ip == nil {
		return nil, none, usageError{fmt.Errorf("--listen %q is no address: give one of this machine's, or 0.0.0.0 for all of them", v.listen)}
	}
	if (v.cert == "") != (v.key == "") {
		return nil, none, usageError{errors.New("--tls-cert and --tls-key belong together: give both, or none for a certificate that the server makes")}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), strconv.Itoa(v.port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, none, fmt.Errorf("serve on port %d: something else listens there: give another --port, or 0 for a free one", v.port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, none, fmt.Errorf("serve on %s: this machine does not have the address: give one that it has, or 0.0.0.0 for all of them", v.listen)
	case err != nil:
		return nil, none, fmt.Errorf("serve on port %d: %w", v.port, err)
	}
	if ip.IsLoopback() && v.cert == "" {
		return l, place{url: "http://" + l.Addr().String()}, nil
	}
	var s *secured
	if v.cert != "" {
		s, err = theirs(ctx, v.cert, v.key, ip)
	} else {
		s, err = ours(v.dir, ip)
	}
	if err != nil {
		l.Close()
		return nil, none, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	at := place{url: "https://" + net.JoinHostPort(s.host, port), authority: s.authority, warning: s.warning}
	if s.pin != "" {
		at.url += "#" + s.pin
	}
	return tls.NewListener(l, s.config), at, nil
}

// start opens the server on its nodes.
func (v *serving) start(
	ctx context.Context, st *store.Store, m *maker, who *node.User, token string, log *slog.Logger,
) (*server.Server, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	key := sha256.Sum256([]byte("gangs " + token))
	back := fleet.New(fleet.Config{
		Here: &node.Local{
			Dir: filepath.Join(v.dir, node.AttemptsName), Hora: v.hora, Environ: who.Environ(m.environ), User: who,
			Server: func() (string, error) { return m.address, nil }, GPUs: node.GPUs(m.environ),
			Nodes: []schedule.Node{
				{Name: host, Pool: "default", Slots: v.slots, Memory: node.Memory(), GPUs: node.GPUs(m.environ)},
			},
			Open: func(hash string) (io.ReadCloser, error) { return os.Open(st.BlobFile(hash)) },
		},
		Key: key[:], Patience: v.patience, Beat: min(2*time.Second, v.patience/15),
	})
	s, err := server.New(ctx, st, back, m, key[:], log)
	if err != nil {
		back.Close()
	}
	return s, err
}

// announce tells this user's clients where it serves, and the token: in a file for this address, and as the current
// server.
func announce(dir, address, token string) error {
	if err := errors.Join(os.MkdirAll(dir, 0o700), snapshot.StayBehind(dir)); err != nil {
		return err
	}
	for _, name := range []string{client.FileOf(address), "current"} {
		if err := writeFile(filepath.Join(dir, name), address+"\n"+token+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file that is whole whenever it is read.
func writeFile(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// tokenFile, in the server's folder, has the token that may do everything.
const tokenFile = "token"

// tokenOf reads the token that opens a server, and makes it the first time.
func tokenOf(dir string) (string, error) {
	name := filepath.Join(dir, tokenFile)
	b, err := os.ReadFile(name)
	if err == nil {
		if t := strings.TrimSpace(string(b)); len(t) >= 32 {
			return t, nil
		}
		return "", fmt.Errorf("read %s: it is no token: remove the file, and a new one is made", name)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	var raw [24]byte
	rand.Read(raw[:])
	token := hex.EncodeToString(raw[:])
	return token, os.WriteFile(name, []byte(token+"\n"), 0o600)
}
