package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hora/server/node"
	"hora/server/snapshot"
)

// nodeOptions are the flags of hora node.
type nodeOptions struct {
	pool, name, dir, server, serverFile, memory, runAs string
	slots, gpus                                        int
}

func (p *program) nodeCommand() *cobra.Command {
	o := &nodeOptions{slots: runtime.NumCPU()}
	c := &cobra.Command{
		Use:   "node --pool NAME [flags]",
		Short: "offer this machine to a pool of a server",
		Long: "node dials in to a server and runs the jobs that the server places here, until it is ended.\n\n" +
			"  hora pool add two                            once, where you are logged in\n" +
			"  hora pool token two                          prints the line that each machine runs\n" +
			"  HORA_TOKEN=... hora node --pool two --server https://HOST:8470#FINGERPRINT\n\n" +
			"The token is needed the first time only: the server gives each node one of its own. Jobs that run here go on\n" +
			"when the server or this program ends, and are taken up when it is back within the server's patience.",
		Args: noArguments("node"),
		RunE: func(c *cobra.Command, _ []string) error { return p.joinPool(c.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.pool, "pool", "", "the pool's `name`")
	f.StringVar(&o.server, "server", "", "the server's `address`, as hora pool token prints it (default HORA_SERVER)")
	f.StringVar(&o.name, "name", "", "what this node is called (default the machine's name)")
	f.IntVar(&o.slots, "slots", o.slots, "how many processes of jobs run here at once")
	f.StringVar(&o.memory, "memory", "", "what jobs may have, as 8GiB (default all that this machine has)")
	f.IntVar(&o.gpus, "gpus", -1, "GPUs that jobs may have (default those of this machine)")
	f.StringVar(&o.dir, "dir", "", "the node's `folder` (default ~/.local/share/hora/node-NAME)")
	f.StringVar(&o.runAs, "run-as", "", "`user` whom jobs run as, a name or UID:GID, where root starts the node")
	f.StringVar(&o.serverFile, "server-file", "", "file that has the server's address")
	_ = f.MarkHidden("server-file")
	c.AddCommand(p.nodeListCommand(), p.nodeRevokeCommand())
	return c
}

// aloneFor is how long a node that a server has made stays without it, when it has nothing of a job's.
const aloneFor = 2 * time.Minute

// member makes what joins of the flags.
func (p *program) member(o *nodeOptions) (*node.Member, error) {
	if o.pool == "" {
		return nil, usageError{errors.New("hora node needs the pool that this machine joins: give --pool NAME, as hora pool token prints it")}
	}
	if o.slots < 1 || o.slots > 1<<16 {
		return nil, usageError{fmt.Errorf("--slots %d: give a number from 1 to 65536", o.slots)}
	}
	server, named := o.server, "--server"
	if server == "" {
		server, named = p.getenv("HORA_SERVER"), "HORA_SERVER"
	}
	if server == "" {
		named = o.serverFile
	}
	if server == "" && o.serverFile == "" {
		return nil, usageError{errors.New("hora node does not know where the server is: give --server, as hora pool token prints it, or HORA_SERVER")}
	}
	memory := node.Memory()
	if o.memory != "" {
		var err error
		if memory, err = parseMemory(o.memory); err != nil {
			return nil, usageError{fmt.Errorf("--memory: %w", err)}
		}
		if there := node.Memory(); there > 0 && memory > there {
			fmt.Fprintf(p.err, "hora: --memory %s is more than this machine has, which is %.4g GiB: the kernel ends jobs that use so much\n", o.memory, float64(there)/(1<<30))
		}
	}
	if o.serverFile == "" {
		o.serverFile = os.DevNull
	}
	gpus := o.gpus
	if there := node.GPUs(os.Environ()); gpus < 0 {
		gpus = there
	} else if named := os.Getenv("CUDA_VISIBLE_DEVICES"); named != "" && gpus > there {
		return nil, usageError{fmt.Errorf("--gpus %d: CUDA_VISIBLE_DEVICES=%s names %d: give fewer, or let it name more", gpus, named, there)}
	}
	if o.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, usageError{fmt.Errorf("this machine has no name: %w: give --name", err)}
		}
		o.name = host
	}
	if strings.ContainsAny(o.name, "/\\ \t\r\n\x00") {
		return nil, usageError{fmt.Errorf("--name %q: give a name without blanks and slashes", o.name)}
	}
	token, err := p.givenToken()
	if err != nil {
		return nil, err
	}
	return &node.Member{
		Hello: node.Hello{Version: version(), Name: o.name, Pool: o.pool, Slots: o.slots, Memory: memory, GPUs: gpus},
		Token: token, Named: named,
		Server: func() (string, error) {
			if server != "" {
				return server, nil
			}
			b, err := os.ReadFile(o.serverFile)
			return strings.TrimSpace(string(b)), err
		},
		Say: func(text string) { fmt.Fprintln(p.err, "hora:", text) },
	}, nil
}

// joinPool joins and stays.
func (p *program) joinPool(ctx context.Context, o *nodeOptions) error {
	made := o.serverFile != ""
	m, err := p.member(o)
	if err != nil {
		return err
	}
	if made {
		m.Alone = aloneFor
	}
	who, err := runAs(o.runAs)
	if err != nil {
		return err
	}
	switch {
	case o.dir == "" && who != nil: // root's home is root's alone
		o.dir = filepath.Join("/var/lib/hora", "node-"+o.name)
	case o.dir == "":
		o.dir = filepath.Join(p.dataFolder(), "node-"+o.name)
	}
	if m.Dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if err := makeFolder(m.Dir, who); err != nil {
		return err
	}
	lock, err := node.Lock(m.Dir)
	if errors.Is(err, node.ErrTaken) {
		return fmt.Errorf("another hora node has the folder %s: end it, or give this one another --name", m.Dir)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if m.Instance, err = instance(m.Dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(m.Dir, "token")); err != nil && m.Token == "" {
		return usageError{fmt.Errorf("node %s has no token yet: hora pool token %s, where you are logged in, prints one; give it as HORA_TOKEN or HORA_TOKEN_FILE", o.name, o.pool)}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	if err := who.Own(m.Dir, self); err != nil {
		return usageError{err}
	}
	// A node is a host, also where two are on one machine.
	environ := append(who.Environ(node.Inherited(os.Environ(), self)), "HORA_HOST_ID=node-"+m.Name)
	m.Local = &node.Local{
		Dir: filepath.Join(m.Dir, node.AttemptsName), Hora: self, Environ: environ, Server: m.Server, User: who,
		GPUs: m.GPUs,
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := m.Join(ctx); err != nil {
		return fmt.Errorf("node %s: %w", m.Name, err)
	}
	return nil
}

// runAs reads the flag of that name.
func runAs(name string) (*node.User, error) {
	if name == "" {
		return nil, nil
	}
	u, err := node.FindUser(name)
	if err != nil {
		return nil, usageError{err}
	}
	return u, nil
}

// makeFolder makes a node's folder, below folders that are open to the user whom jobs run as.
func makeFolder(dir string, who *node.User) error {
	if who != nil {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll(dir, 0o700), snapshot.StayBehind(dir))
}

// instance tells this folder's node from another of the same name.
func instance(dir string) (string, error) {
	name := filepath.Join(dir, "instance")
	b, err := os.ReadFile(name)
	if err == nil && len(b) >= 32 {
		return string(b), nil
	}
	var raw [16]byte
	rand.Read(raw[:])
	text := hex.EncodeToString(raw[:])
	return text, os.WriteFile(name, []byte(text), 0o600)
}
