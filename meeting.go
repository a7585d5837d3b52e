package hora

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hora/elastic/rendezvous"
	"hora/internal/secret"
)

// meetByFiles meets the ranks of one host, which a foreign launcher or a hand has started, by
// files in a directory that only this user can enter: local rank 0 writes the secret
// and the address. What an older run left there fails to prove the secret and is read
// again.
func (w *World) meetByFiles(ctx context.Context) error {
	c := &w.cfg
	hand := strings.HasPrefix(c.RunKey, byHand+"-")
	if c.RunKey == "" || c.LocalSize != c.Size && !(hand && c.LocalSize == 0 && isHere(c.Addr)) {
		return errors.New("this job has no secret: set HORA_SECRET_FILE on every host to a file of mode 0600 that holds the same 64 hexadecimal digits (openssl rand -hex 32), or start it with hora run")
	}
	dir := c.RunDir
	if dir == "" {
		dir = os.TempDir()
	}
	dir = filepath.Join(dir, "hora-"+strconv.Itoa(os.Getuid()))
	if c.RunKey == anyPMI {
		c.RunKey = runKey(anyPMI, strconv.Itoa(launcher()))
	}
	key := filepath.Join(dir, fmt.Sprintf("%s-%d", c.RunKey, c.Epoch))
	if c.Rank == 0 {
		return w.meetAsFirst(ctx, key)
	}
	err := w.persist(ctx, func() error {
		if err := secret.OwnFolder(dir); err != nil {
			return err
		}
		return w.tryFiles(ctx, key)
	})
	if err != nil {
		err = fmt.Errorf("meet rank 0 by the files %s.*: %w", key, err)
	}
	if err != nil && hand {
		err = fmt.Errorf("%w; ranks on other hosts need HORA_SECRET_FILE and HORA_ADDR", err)
	}
	return err
}

// isHere says of a coordinator's address that only this host can mean it, or that there
// is none.
func isHere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return addr == "" || err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// loopback is where the ranks of a job that is on one host listen.
const loopback = "127.0.0.1"

// alone says that all ranks are on this host: rank 0 serves them where no other host can mean it, or the launcher
// counted no rank elsewhere.
func (c *Config) alone() bool { return c.Serve && (c.LocalSize == c.Size || isHere(c.Addr)) }

// launcher returns the process that started the ranks of this host: the nearest one above this
// that was not given a rank itself, since scripts may stand between.
func launcher() int {
	pid := os.Getppid()
	for range 64 {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !bytes.Contains(env, []byte("\x00PMI_RANK=")) && !bytes.HasPrefix(env, []byte("PMI_RANK=")) {
			break
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		// The name in parentheses may hold anything; the parent is the second field after it.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 2 {
			break
		}
		above, err := strconv.Atoi(f[1])
		if err != nil || above <= 1 {
			break
		}
		pid = above
	}
	return pid
}

// meetAsFirst serves the rendezvous and writes where.
func (w *World) meetAsFirst(ctx context.Context, key string) error {
	c := &w.cfg
	c.Secret = secret.New()
	any := net.JoinHostPort(loopback, "0")
	addr := any
	if _, port, err := net.SplitHostPort(c.Addr); err == nil {
		addr = net.JoinHostPort(loopback, port)
	}
	err := w.serve(ctx, addr)
	if err != nil && addr != any {
		err = w.serve(ctx, any) // the port may be taken; the file says which it is
	}
	if err != nil {
		return err
	}
	addr = w.server.Addr().String()
	if err := c.Secret.WriteFile(key + ".secret"); err != nil {
		return err
	}
	defer os.Remove(key + ".secret")
	draft := key + ".addr." + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(draft, []byte(addr), 0o600); err != nil {
		return fmt.Errorf("write address for the other ranks: %w", err)
	}
	if err := os.Rename(draft, key+".addr"); err != nil {
		return fmt.Errorf("write address for the other ranks: %w", err)
	}
	defer os.Remove(key + ".addr")
	return w.meetAt(ctx, addr, c.Secret)
}

// tryFiles joins by what the files say now.
func (w *World) tryFiles(ctx context.Context, key string) error {
	addr, err := secret.ReadFile(key + ".addr")
	if err != nil {
		return err
	}
	s, err := secret.ReadOwn(key + ".secret")
	if err != nil {
		return err
	}
	probe, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	c, err := rendezvous.Dial(probe, string(addr), s, rendezvous.Hello{Job: w.cfg.Job, Rank: -1, Host: w.cfg.Host})
	if err != nil {
		return err
	}
	c.Close()
	return w.meetAt(ctx, string(addr), s)
}

// meetPeers needs nobody: every rank's address is known. Ranks whose addresses name one
// host share memory, over a socket whose name they can all work out.
func (w *World) meetPeers(ctx context.Context) error {
	c := &w.cfg
	if c.Secret.IsZero() {
		return errors.New("ranks that are given as peers need a secret: set Config.Secret or HORA_SECRET_FILE")
	}
	local := make(map[string]int)
	hosts := make([]string, len(c.Peers))
	for r, p := range c.Peers {
		p = strings.TrimSpace(p)
		host, _, err := net.SplitHostPort(p)
		if err != nil {
			return fmt.Errorf("peer %d is %q, which is not host:port", r, p)
		}
		hosts[r] = host
		m := rendezvous.Member{Rank: r, Host: host, HostID: host, Unix: w.socketOf(r), Addrs: []string{p}}
		m.LocalRank = local[host]
		local[host]++
		w.members = append(w.members, m)
	}
	for r := range w.members {
		w.members[r].LocalSize = local[hosts[r]]
	}
	w.number = c.Epoch
	w.socket = w.socketOf(c.Rank)
	if c.Listen == "" {
		c.Listen = strings.TrimSpace(c.Peers[c.Rank])
	}
	return w.listen(ctx)
}

// socketOf returns the abstract socket of a rank that was given as a peer. It is a secret of
// the job, so that strangers cannot take it first.
func (w *World) socketOf(rank int) string {
	m := hmac.New(sha256.New, w.cfg.Secret[:])
	fmt.Fprintf(m, "socket %s %d %d %s", w.cfg.Job, w.cfg.Epoch, rank, w.cfg.Peers[rank])
	return "@hora-" + hex.EncodeToString(m.Sum(nil)[:16])
}
