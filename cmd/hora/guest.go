package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/internal/secret"
	"hora/launch"
	"hora/launch/agent"
	"hora/launch/local"
	"hora/launch/machine"
)

// dialLimit is how long an agent tries to reach its hub.
const dialLimit = 15 * time.Second

func (p *program) agentCommand() *cobra.Command {
	var hubs []string
	slots, node, kept, guard := 1, "", false, 0
	c := &cobra.Command{
		Use:   "agent --hub HOST:PORT[,HOST:PORT…]",
		Short: "offer this machine to a job that hora hub starts",
		Long: "agent goes to a hub, proves the job's secret and starts there what the hub tells it to. The secret is the first line of\n" +
			"standard input, 64 hexadecimal digits, or in the file that HORA_SECRET_FILE names. The end of standard input, or the loss\n" +
			"of the hub, ends the workers. It exits with 0 when the job has ended well, else with the job's code.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if len(hubs) == 0 {
				return usageError{errors.New("--hub is missing: say where the job's hub listens, as in hora agent --hub 10.0.0.5:7070")}
			}
			if slots < 1 {
				return usageError{fmt.Errorf("--slots %d: name how many workers this agent takes, at least 1", slots)}
			}
			if guard > 0 { // open as long as this process lives, and in no other
				syscall.CloseOnExec(guard)
			}
			if !kept {
				return p.keepGuest(hubs, slots, node)
			}
			return p.guest(hubs, slots, node)
		},
	}
	c.Flags().StringSliceVar(&hubs, "hub", nil, "where the hub listens; the first address that answers is taken")
	c.Flags().IntVar(&slots, "slots", 1, "how many workers this agent takes")
	c.Flags().StringVar(&node, "node", "", "what the hub calls this machine, where that is no matter of its host name")
	c.Flags().BoolVar(&kept, "kept", false, "a process of ours looks after this one")
	c.Flags().IntVar(&guard, "guard", 0, "the file that the guard listens to")
	_ = c.Flags().MarkHidden("kept")
	_ = c.Flags().MarkHidden("guard")
	return c
}

// keepGuest is the process above such an agent: when that is killed it ends what is left, and when it is killed itself
// the agent ends all.
func (p *program) keepGuest(hubs []string, slots int, node string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(caught)
	argv := []string{self, "agent", "--kept", "--hub", strings.Join(hubs, ","), "--slots", strconv.Itoa(slots)}
	if node != "" {
		argv = append(argv, "--node", node)
	}
	guard, err := local.StartGuard(guardProgram, os.TempDir())
	if err != nil {
		fmt.Fprintf(p.err, "hora: warning: %v\n", err)
	}
	defer guard.Close()
	if guard.File() != nil {
		argv = append(argv, "--guard", "3")
	}
	code, err := agent.KeepBound(argv, os.TempDir(), caught, guard.File(), guard.Agent)
	if err != nil {
		return &launch.Error{Code: code, Text: err.Error()}
	}
	p.code = code
	return nil
}

// guest is an agent that goes to its hub.
func (p *program) guest(hubs []string, slots int, node string) error {
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(caught)
	s, err := p.guestSecret()
	if err != nil {
		return usageError{err}
	}
	name := p.getenv("HORA_HOST")
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			name = "localhost"
		}
	}
	conn, err := agent.Dial(p.ctx, hubs, s, name, dialLimit)
	var refused *secret.RefusedError
	if errors.As(err, &refused) && refused.Reason == launch.JobOver {
		fmt.Fprintf(p.err, "hora: %s: nothing is left to do here\n", launch.JobOver)
		return nil
	}
	if err != nil {
		return &launch.Error{Code: launch.ExitHost, Text: fmt.Sprintf("%v: look whether the hub runs, and whether this machine reaches it and has its secret", err)}
	}
	stream := agent.Lead(conn, func() (net.Conn, error) { return agent.Dial(p.ctx, hubs, s, name, dialLimit) })
	defer stream.Close()
	ended := make(chan struct{})
	if st, err := p.in.Stat(); err == nil && st.Mode()&os.ModeCharDevice == 0 { // /dev/null says nothing of anybody
		go func() {
			_, _ = io.Copy(io.Discard, p.in)
			close(ended)
		}()
	}
	return p.offer(agent.Config{
		In: stream, Out: stream, Away: stream.Away, InputRank: -1, Temp: os.TempDir(), Getenv: p.getenv,
		Grace: hubGrace, Signals: caught,
		Secret: s, Ended: ended, Environ: guestEnviron(os.Environ()),
		Guest: &agent.Guest{Name: name, ID: hostID(p.getenv), Slots: slots, Node: node},
	})
}

// offer runs the agent until the job is over for it.
func (p *program) offer(cfg agent.Config) error {
	var err error
	if cfg.Home, err = os.Getwd(); err != nil {
		return &launch.Error{Code: launch.ExitSystem, Text: fmt.Sprintf("find the working directory: %v: start the agent in one that exists", err)}
	}
	told, text := -1, ""
	cfg.Over = func(code int, why string) { told, text = code, why }
	err = agent.Run(cfg)
	switch {
	case told >= 0:
		if p.code = told; told != 0 {
			fmt.Fprintf(p.err, "hora: the job has ended: %s\n", event.Visible(text))
		} else if text == launch.JobOver {
			fmt.Fprintf(p.err, "hora: %s: nothing is left to do here\n", text)
		}
		return nil
	case isClosed(cfg.Ended):
		return &launch.Error{Code: launch.ExitSignal + int(syscall.SIGTERM), Text: "the agent's standard input has ended, and with it its part of the job"}
	case err != nil:
		return &launch.Error{Code: launch.ExitHost, Text: fmt.Sprintf("lost the hub: %v: its workers here have been ended", err)}
	}
	return &launch.Error{Code: launch.ExitHost, Text: "lost the hub: its workers here have been ended: look what ended it"}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// guestEnviron is what workers get of an agent's own environment.
func guestEnviron(environ []string) []string {
	var out []string
	for _, kv := range environ {
		if name, _, _ := strings.Cut(kv, "="); name != "HORA_SECRET_FILE" && name != "HORA_SECRET" {
			out = append(out, kv)
		}
	}
	return out
}

// guestSecret reads the secret: a line of standard input, byte by byte since more is not meant for it, or a file.
func (p *program) guestSecret() (secret.Secret, error) {
	if path := p.getenv("HORA_SECRET_FILE"); path != "" {
		return secret.Read(path)
	}
	var line []byte
	for b := make([]byte, 1); len(line) < 4*secret.Bytes; {
		n, err := p.in.Read(b)
		if n == 0 || err != nil || b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	s, err := secret.Parse(line)
	if err != nil {
		return s, fmt.Errorf("the first line of standard input is not the job's secret: %w: write the hub's secret there, or name its file in HORA_SECRET_FILE", err)
	}
	return s, nil
}

// hostID tells machines apart, as for workers.
func hostID(getenv func(string) string) string {
	if id := getenv("HORA_HOST_ID"); id != "" {
		return id
	}
	return machine.HostID()
}
