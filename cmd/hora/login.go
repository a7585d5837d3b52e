package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hora/server/client"
)

func (p *program) loginCommand() *cobra.Command {
	return &cobra.Command{
		Use: "login URL", Short: "keep a server's address and token for this user",
		Long: "login reads the server's token from HORA_TOKEN, HORA_TOKEN_FILE or a line of standard input and keeps it, with mode 0600, below ~/.config/hora.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("hora login takes the server's address alone, as hora up prints it: see hora login --help")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			address := strings.TrimSuffix(args[0], "/")
			if err := client.CheckAddress(address); err != nil {
				return usageError{err}
			}
			token, err := p.givenToken()
			if err == nil && token == "" {
				token, err = p.askToken()
			}
			if err != nil {
				return err
			}
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
			bare, _, _ := strings.Cut(address, "#")
			fmt.Fprintf(p.out, "logged in to %s, hora %s\n", bare, about.Version)
			return nil
		},
	}
}

// mostToken bounds the line that a token is read from.
const mostToken = 1 << 12

// askToken reads a token: one line of standard input. A terminal does not show what is typed meanwhile, and shows it
// again however this ends.
func (p *program) askToken() (string, error) {
	read := func() (string, error) {
		line, err := bufio.NewReader(io.LimitReader(p.in, mostToken)).ReadString('\n')
		line = strings.TrimSpace(line)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return "", fmt.Errorf("read the token: %w", err)
		case line == "":
			return "", errors.New("there is no token on standard input: give it as its first line, or as HORA_TOKEN or HORA_TOKEN_FILE")
		}
		return line, nil
	}
	if terminalWidth(p.in) == 0 {
		return read()
	}
	terminal := int(p.in.Fd())
	was, err := unix.IoctlGetTermios(terminal, getTerminal)
	if err != nil {
		return "", fmt.Errorf("read the terminal's settings: %w", err)
	}
	ctx, release := p.untilStopped()
	defer release()
	hidden := *was
	hidden.Lflag = hidden.Lflag&^unix.ECHO | unix.ECHONL
	if err := unix.IoctlSetTermios(terminal, setTerminal, &hidden); err != nil {
		return "", fmt.Errorf("have the terminal not show the token: %w", err)
	}
	defer func() { _ = unix.IoctlSetTermios(terminal, setTerminal, was) }()
	fmt.Fprint(p.err, "token, which is not shown: ")
	type line struct {
		text string
		err  error
	}
	typed := make(chan line, 1)
	go func() {
		text, err := read()
		typed <- line{text, err}
	}()
	select {
	case l := <-typed:
		return l.text, l.err
	case <-ctx.Done(): // the program ends, and who reads ends with it
		return "", p.stopped(ctx, ", and no token is kept")
	}
}
