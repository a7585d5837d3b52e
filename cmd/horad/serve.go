package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

	"hora/job/schedule"
	"hora/server"
	"hora/server/node"
	"hora/server/store"
)

type serving struct {
	dir, listen, hora, version, config string
	port, slots                        int
}

func serveCommand(out, errs io.Writer) *cobra.Command {
	v := &serving{}
	c := &cobra.Command{
		Use: "serve", Short: "serve a folder", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return v.serve(c.Context(), out, errs) },
	}
	f := c.Flags()
	f.StringVar(&v.dir, "dir", "", "the server's folder")
	f.StringVar(&v.listen, "listen", "127.0.0.1", "the address to serve on")
	f.IntVar(&v.port, "port", 8470, "the port; 0 takes a free one")
	f.IntVar(&v.slots, "slots", 1, "how many processes run on this machine at once")
	f.StringVar(&v.hora, "hora", "", "the hora program that keeps jobs")
	f.StringVar(&v.version, "version-of-hora", "", "what the hora program is")
	f.StringVar(&v.config, "config", "", "the user's folder in which address and token are kept for clients")
	return c
}

func (v *serving) serve(ctx context.Context, out, errs io.Writer) error {
	if v.dir == "" || v.hora == "" {
		return usageError{errors.New("--dir and --hora are needed: start the server with hora up, which gives them")}
	}
	ip := net.ParseIP(v.listen)
	if v.listen == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if ip == nil || !ip.IsLoopback() {
		return usageError{fmt.Errorf("--listen %s: beyond this machine a server needs TLS, which this release does not have: listen on 127.0.0.1 and reach it with ssh -L %d:127.0.0.1:%d", v.listen, v.port, v.port)}
	}
	log := slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelInfo}))
	st, err := store.Open(v.dir)
	if err != nil {
		return err
	}
	defer st.Close()
	token, err := tokenOf(v.dir)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), strconv.Itoa(v.port)))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("serve on port %d: something else listens there: give another --port, or 0 for a free one", v.port)
		}
		return fmt.Errorf("serve on port %d: %w", v.port, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	back := &node.Local{
		Dir: filepath.Join(v.dir, "attempts"), Hora: v.hora, Environ: environ(v.hora),
		Nodes: []schedule.Node{{Name: host, Pool: "default", Slots: v.slots, Memory: machineMemory(), GPUs: machineGPUs()}},
	}
	s, err := server.New(ctx, st, back, log)
	if err != nil {
		return err
	}
	defer s.Close()
	end := make(chan struct{}, 1)
	h := &http.Server{
		Handler:           s.Handler(server.Settings{Version: v.version, Token: token, Down: func(bool) { end <- struct{}{} }}),
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	url := "http://" + l.Addr().String()
	if v.config != "" {
		if err := announce(v.config, l.Addr().String(), token); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "hora: serving %s\n", url)
	fmt.Fprintf(out, "hora: in a browser: %s/?token=%s\n", url, token)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	select {
	case err = <-failed:
	case <-end:
	case <-signals:
	}
	s.Close() // followers are told first
	down, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if h.Shutdown(down) != nil {
		h.Close()
	}
	fmt.Fprintln(out, "hora: the server has ended; jobs that run go on, and hora up takes them up again")
	return err
}

// announce tells this user's clients where it serves, and the token: in a file for this address, and as the current server.
func announce(dir, address, token string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"server-" + strings.NewReplacer(":", "_", "[", "", "]", "").Replace(address), "current"} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at+".new", []byte("http://"+address+"\n"+token+"\n"), 0o600); err != nil {
			return err
		}
		if err := os.Rename(at+".new", at); err != nil {
			return err
		}
	}
	return nil
}

// tokenOf reads the token that opens a server, and makes it the first time.
func tokenOf(dir string) (string, error) {
	name := filepath.Join(dir, "token")
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

// environ is what jobs inherit: all of this program's but what belongs to it, and hora's folder first in PATH, so that the
// interpreter beside it is python.
func environ(hora string) []string {
	var all []string
	path := filepath.Dir(hora)
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH":
			if value != "" {
				path += string(os.PathListSeparator) + value
			}
		case name == "HORA_TOKEN", name == "HORA_TOKEN_FILE", name == "OLDPWD", name == "PWD":
		default:
			all = append(all, kv)
		}
	}
	return append(all, "PATH="+path)
}
