package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"hora/server/client"
)

func (p *program) upCommand() *cobra.Command {
	var dir, listen string
	port, slots := 8470, runtime.NumCPU()
	c := &cobra.Command{
		Use:   "up",
		Short: "start a server that queues and runs jobs on this machine",
		Long: "up starts the server in the foreground, with this machine as its pool `default`.\n\n" +
			"  hora up                                  in one terminal\n" +
			"  hora submit -np 2 --follow python train.py    in another\n\n" +
			"Ctrl-C or hora down ends the server; jobs that run go on, and the next hora up takes them up again.",
		Args: noArguments("up"),
		RunE: func(*cobra.Command, []string) error { return p.up(dir, listen, port, slots) },
	}
	c.Flags().StringVar(&dir, "dir", "", "the server's `folder` (default ~/.local/share/hora/server)")
	c.Flags().StringVar(&listen, "listen", "127.0.0.1", "the `address` to serve on")
	c.Flags().IntVar(&port, "port", port, "the port; 0 takes a free one")
	c.Flags().IntVar(&slots, "slots", slots, "how many processes of jobs run at once")
	return c
}

func (p *program) up(dir, listen string, port, slots int) error {
	switch {
	case port < 0 || port > 65535:
		return usageError{fmt.Errorf("--port %d is no port: give one from 1 to 65535, or 0 for a free one", port)}
	case slots < 1 || slots > 1<<16:
		return usageError{fmt.Errorf("--slots %d: give a number from 1 to 65536", slots)}
	}
	config, err := p.configFolder()
	if err != nil {
		return err
	}
	if dir == "" {
		data := p.getenv("XDG_DATA_HOME")
		if data == "" {
			data = filepath.Join(p.getenv("HOME"), ".local", "share")
		}
		dir = filepath.Join(data, "hora", "server")
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
		horad, "serve", "--dir", dir, "--listen", listen, "--port", strconv.Itoa(port), "--slots", strconv.Itoa(slots),
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
	return "", errors.New("the server's program horad is neither beside hora nor in PATH: install the wheel hora-server, which make wheels builds into dist/")
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
			case now || a.Running == 0:
				fmt.Fprintf(p.out, "the server at %s has ended\n", s.URL)
			default:
				fmt.Fprintf(p.out, "the server at %s has ended; %d running and %d queued jobs stay, and hora up takes them up again\n", s.URL, a.Running, a.Queued)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&now, "now", false, "cancel the jobs that run first")
	return c
}

func (p *program) loginCommand() *cobra.Command {
	return &cobra.Command{
		Use: "login URL", Short: "keep a server's address and token for this user",
		Long: "login reads the server's token from HORA_TOKEN, HORA_TOKEN_FILE or standard input and keeps it, with mode 0600, below ~/.config/hora.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			address := strings.TrimSuffix(args[0], "/")
			if serverFile(address) == "" {
				return usageError{fmt.Errorf("%q is no address: write it as http://HOST:PORT", args[0])}
			}
			token := p.getenv("HORA_TOKEN")
			if name := p.getenv("HORA_TOKEN_FILE"); token == "" && name != "" {
				b, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				token = string(b)
			}
			if token == "" {
				if terminalWidth(p.in) > 0 {
					fmt.Fprint(p.err, "token: ")
				}
				b, err := io.ReadAll(io.LimitReader(p.in, 1<<12))
				if err != nil {
					return err
				}
				token = string(b)
			}
			token = strings.TrimSpace(token)
			about, err := client.New(address, token).About(c.Context())
			if err != nil {
				return err
			}
			dir, err := p.configFolder()
			if err != nil {
				return err
			}
			if err := remember(dir, address, token); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "logged in to %s, hora %s\n", address, about.Version)
			return nil
		},
	}
}
