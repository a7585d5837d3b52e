package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"hora/launch"
	"hora/server/client"
	"hora/server/snapshot"
)

// Where the address and token of servers are kept: a file a server, and "current" for the one that was started or logged in
// to last. Each has the address and the token, a line each, and mode 0600.
const currentServer = "current"

// configFolder is where hora keeps what it must remember for this user.
func (p *program) configFolder() (string, error) {
	if dir := p.getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "hora"), nil
	}
	home := p.getenv("HOME")
	if home == "" {
		return "", errors.New("HOME is not set, so there is no place for a server's token: set HORA_SERVER and HORA_TOKEN")
	}
	return filepath.Join(home, ".config", "hora"), nil
}

func readServer(dir, name string) (address, token string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", "", err
	}
	address, token, _ = strings.Cut(strings.TrimSpace(string(b)), "\n")
	return address, strings.TrimSpace(token), nil
}

// remember keeps a server's token and makes it the current one.
func remember(dir, address, token string) error {
	if err := errors.Join(os.MkdirAll(dir, 0o700), snapshot.StayBehind(dir)); err != nil {
		return err
	}
	for _, name := range []string{client.FileOf(address), currentServer} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at+".new", []byte(address+"\n"+token+"\n"), 0o600); err != nil {
			return err
		}
		if err := os.Rename(at+".new", at); err != nil {
			return err
		}
	}
	return nil
}

// dataFolder is where hora keeps what is large.
func (p *program) dataFolder() string {
	data := p.getenv("XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(p.getenv("HOME"), ".local", "share")
	}
	return filepath.Join(data, "hora")
}

// givenToken is the token of HORA_TOKEN or HORA_TOKEN_FILE, if any.
func (p *program) givenToken() (string, error) {
	token := strings.TrimSpace(p.getenv("HORA_TOKEN"))
	if name := p.getenv("HORA_TOKEN_FILE"); token == "" && name != "" {
		b, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("HORA_TOKEN_FILE: %w: name the file with the server's token", err)
		}
		token = strings.TrimSpace(string(b))
	}
	return token, nil
}

// server is the client of the server that is meant: HORA_SERVER, else the current one.
func (p *program) server() (*client.Client, error) {
	address := strings.TrimSuffix(p.getenv("HORA_SERVER"), "/")
	token, err := p.givenToken()
	if err != nil {
		return nil, err
	}
	if address != "" {
		if err := client.CheckAddress(address); err != nil {
			return nil, usageError{fmt.Errorf("HORA_SERVER: %w", err)}
		}
	}
	if address == "" || token == "" {
		dir, err := p.configFolder()
		if err != nil {
			return nil, err
		}
		name := currentServer
		if address != "" {
			name = client.FileOf(address)
		}
		kept, keptToken, err := readServer(dir, name)
		switch {
		case err != nil && address == "":
			return nil, &launch.Error{Code: launch.ExitHost, Text: "there is no server: start one with hora up, or name one with HORA_SERVER or hora login URL"}
		case err != nil:
			return nil, fmt.Errorf("there is no token for %s: give it as HORA_TOKEN, or once with hora login %s", address, address)
		}
		if address == "" || !strings.Contains(address, "#") && strings.HasPrefix(kept, address+"#") {
			address = kept
		}
		if token == "" {
			token = keptToken
		}
	}
	c := client.New(address, token)
	if u, err := user.Current(); err == nil {
		c.User = u.Username
	}
	return c, nil
}
