package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/server"
	"hora/server/client"
	"hora/server/node"
)

// maker makes the nodes of pools and ends them: as processes of this machine, or with the user's commands.
type maker struct {
	hora, dir string
	runAs     string // whom jobs of nodes on this machine run as; empty for the server's own user
	environ   []string
	address   string // where nodes come to
}

// commandWithin bounds one of the user's commands.
const commandWithin = 10 * time.Minute

// addressFile, in the server's folder, is how this machine's nodes find the server after it was started anew.
const addressFile = "address"

func (m *maker) folder(name string) string { return filepath.Join(m.dir, nodesFolder, name) }

// nodesFolder has those of nodes that are processes of this machine.
const nodesFolder = "nodes"

// Create makes a node, which then comes by itself with the token.
func (m *maker) Create(p *client.Pool, name, token string) error {
	if p.Provider == "command" {
		_, err := m.command(p, "create", p.Create, name, "HORA_SERVER="+m.address, "HORA_TOKEN="+token)
		return err
	}
	dir := m.folder(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	join := filepath.Join(dir, "join")
	if err := os.WriteFile(join, []byte(token+"\n"), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(m.hora, "node", "--pool", p.Name, "--name", name, "--dir", dir, "--slots", strconv.Itoa(p.Node.Cores),
		"--gpus", strconv.Itoa(p.Node.GPUs), "--server-file", filepath.Join(m.dir, addressFile))
	if m.runAs != "" {
		c.Args = append(c.Args, "--run-as", m.runAs)
	}
	if p.Node.Memory > 0 {
		c.Args = append(c.Args, "--memory", strconv.FormatInt(p.Node.Memory, 10))
	}
	c.Dir, c.Stdout, c.Stderr = dir, log, log
	c.Env = append(append([]string{}, m.environ...), "HORA_TOKEN_FILE="+join)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it lives on when the server ends
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.hora, err)
	}
	go func() { _ = c.Wait() }() // or it stays as a zombie
	return nil
}

// Delete sees to it that a node is gone. What jobs left on one that still runs some stays.
func (m *maker) Delete(p *client.Pool, name string) error {
	if p.Provider == "command" {
		_, err := m.command(p, "delete", p.Delete, name)
		return err
	}
	dir := m.folder(name)
	for range 50 {
		lock, err := node.Lock(dir)
		if err == nil {
			defer lock.Close()
			return os.RemoveAll(dir)
		}
		if !errors.Is(err, node.ErrTaken) {
			return nil // its folder is gone
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// List names the nodes that there are: by the user's command, or those of this machine that hold their folder's lock.
func (m *maker) List(p *client.Pool) (names []string, err error) {
	if p.Provider == "command" {
		out, err := m.command(p, "list", p.List, "")
		return strings.Fields(string(out)), err
	}
	ours, err := filepath.Glob(m.folder(p.Name + "-*"))
	for _, dir := range ours {
		name := filepath.Base(dir)
		if !server.NamesNode(p.Name, name) {
			continue // of a pool whose name begins alike
		}
		lock, err := node.Lock(dir)
		if errors.Is(err, node.ErrTaken) {
			names = append(names, name)
		} else if err == nil {
			lock.Close()
		}
	}
	return names, err
}

// command runs one of the user's. What it says on standard error is the reason where it fails; its own text is told to
// nobody: there may be keys in it.
func (m *maker) command(p *client.Pool, which, text, name string, more ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandWithin)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", text)
	c.Env = append(append(append([]string{}, m.environ...), "HORA_NODE="+name, "HORA_POOL="+p.Name), more...)
	c.WaitDelay = time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it has left something that runs on, as it may
		err = nil
	}
	if err == nil {
		return out.Bytes(), nil
	}
	said := strings.TrimSpace(errs.String())
	if said == "" {
		said = strings.TrimSpace(out.String())
	}
	late := ctx.Err() != nil
	if late {
		err = fmt.Errorf("it took more than %v", commandWithin)
	}
	return nil, &server.CommandFault{
		Command: which, Err: err, Said: said[strings.LastIndexByte(said, '\n')+1:], Late: late,
	}
}
