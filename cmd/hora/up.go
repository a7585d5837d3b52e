package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/server/client"
)

func (p *program) upCommand() *cobra.Command {
	u := &upOptions{port: 8470, slots: runtime.NumCPU()}
	c := &cobra.Command{
		Use:   "up",
		Short: "start a server that queues and runs jobs on this machine",
		Long: "up starts the server in the foreground, with this machine as its pool `default`.\n\n" +
			"  hora up                                  in one terminal\n" +
			"  hora submit -np 2 --follow python train.py    in another\n\n" +
			"Ctrl-C or hora down ends the server; jobs that run go on, and the next hora up takes them up again.",
		Args: noArguments("up"),
		RunE: func(*cobra.Command, []string) error { return p.up(u) },
	}
	f := c.Flags()
	f.StringVar(&u.dir, "dir", "", "the server's `folder` (default ~/.local/share/hora/server)")
	f.StringVar(&u.listen, "listen", "127.0.0.1", "the `address` to serve on; beyond this machine with TLS, 0.0.0.0 for all")
	f.IntVar(&u.port, "port", u.port, "the port; 0 takes a free one")
	f.IntVar(&u.slots, "slots", u.slots, "how many processes of jobs run on this machine at once")
	f.DurationVar(&u.patience, "patience", time.Minute, "how long a node may be silent before what it runs counts as lost")
	f.StringVar(&u.runAs, "run-as", "", "`user` whom jobs on this machine run as, a name or UID:GID, where root starts the server")
	f.StringVar(&u.cert, "tls-cert", "", "`file` with your certificate, in place of one of the server's own")
	f.StringVar(&u.key, "tls-key", "", "`file` with its key")
	return c
}

// upOptions are the flags of hora up.
type upOptions struct {
	dir, listen, cert, key, runAs string
	port, slots                   int
	patience                      time.Duration
}

func (p *program) up(u *upOptions) error {
	switch {
	case u.port < 0 || u.port > 65535:
		return usageError{fmt.Errorf("--port %d is no port: give one from 1 to 65535, or 0 for a free one", u.port)}
	case u.slots < 1 || u.slots > 1<<16:
		return usageError{fmt.Errorf("--slots %d: give a number from 1 to 65536", u.slots)}
	case u.patience < time.Second || u.patience > 24*time.Hour:
		return usageError{fmt.Errorf("--patience %v: give a time from 1s to 24h", u.patience)}
	}
	dir := u.dir
	config, err := p.configFolder()
	if err != nil {
		return err
	}
	if _, err := runAs(u.runAs); err != nil {
		return err
	}
	switch {
	case dir == "" && u.runAs != "": // root's home is root's alone
		dir = "/var/lib/hora/server"
	case dir == "":
		dir = filepath.Join(p.dataFolder(), "server")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	horad, err := findHorad(self)
	if err != nil {
		return err
	}
	args := []string{
		horad, "serve", "--dir", dir, "--listen", u.listen, "--port", strconv.Itoa(u.port), "--slots", strconv.Itoa(u.slots),
		"--patience", u.patience.String(), "--tls-cert", u.cert, "--tls-key", u.key, "--run-as", u.runAs,
		"--hora", self, "--version-of-hora", version(), "--config", config,
	}
	// In its place: signals of the terminal, its streams and its exit code are the server's.
	if err := syscall.Exec(horad, args, os.Environ()); err != nil {
		return fmt.Errorf("start %s: %w", horad, err)
	}
	return nil
}

// findHorad looks for the server's program beside this one, then in PATH.
func findHorad(self string) (string, error) {
	if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), "horad")); err == nil {
		return beside, nil
	}
	if found, err := exec.LookPath("horad"); err == nil {
		return filepath.Abs(found)
	}
	return "", errors.New("the server's program horad is neither beside hora nor in PATH: install the wheel hora-server, which make wheel builds into dist/")
}

func (p *program) downCommand() *cobra.Command {
	now := false
	c := &cobra.Command{
		Use: "down", Short: "end the server; jobs that run go on", Args: noArguments("down"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			a, err := s.Down(c.Context(), now)
			switch {
			case err != nil:
				return err
			default:
				fmt.Fprintf(p.out, "the server at %s has ended%s\n", s.URL, left(&a, now))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&now, "now", false, "cancel the jobs that run first; those that wait are kept, and queue again with the next hora up")
	return c
}

// left says what becomes of the jobs of a server that has ended: those that ran end with it or go on, those on nodes
// that are away end later, and those that wait are kept.
func left(a *client.About, now bool) string {
	text, stay := "", 0
	var kept []string
	keep := func(n int, one, several string) {
		if stay += n; n == 1 {
			kept = append(kept, "1 job "+one)
		} else if n > 1 {
			kept = append(kept, fmt.Sprintf("%d jobs %s", n, several))
		}
	}
	if !now {
		keep(a.Running, "that runs goes on", "that run go on")
	} else if n := a.Running - a.Left; n > 0 {
		text = fmt.Sprintf(", and %s that ran with it", event.Counted(n, "job"))
	}
	keep(a.Left, "whose node is away ends when that is back", "whose nodes are away end when those are back")
	keep(a.Queued+a.Paused, "that waited is kept", "that waited are kept")
	switch stay {
	case 0:
		return text
	case 1:
		return text + "; " + kept[0] + ": hora up with the same folder takes it up again"
	}
	return text + "; " + strings.Join(kept, " and ") + ": hora up with the same folder takes them up again"
}
