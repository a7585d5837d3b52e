package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/launch"
	"hora/server/client"
)

// onlyToken is what the servers of these tests ask for.
const onlyToken = "0123456789abcdef0123456789abcdef"

// aServer answers whoever has that token, over TLS or in clear; its address names the authority that it has.
func aServer(t *testing.T, secured bool) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+onlyToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"version": "1.2.3", "jobs": []}`)
	}))
	t.Cleanup(s.Close)
	if !secured {
		s.Start()
		return s.URL
	}
	s.StartTLS()
	return s.URL + "#" + client.Fingerprint(s.Certificate().Raw)
}

// asUser is hora as a user runs it whose home is this folder.
func asUser(t *testing.T, home string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self(t), args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "HORA_") && !strings.HasPrefix(kv, "HOME=") && !strings.HasPrefix(kv, "XDG_") {
			c.Env = append(c.Env, kv)
		}
	}
	c.Env = append(c.Env, append(env, "HORA_TEST_PROGRAM=1", "HOME="+home)...)
	return c
}

// keeps says whether the address and the token are kept, for this user alone.
func keeps(t *testing.T, home, address string) {
	t.Helper()
	for _, name := range []string{"current", client.FileOf(address)} {
		at := filepath.Join(home, ".config", "hora", name)
		b, err := os.ReadFile(at)
		if want := address + "\n" + onlyToken + "\n"; string(b) != want || err != nil {
			t.Errorf("%s has %q, %v; want %q", name, b, err, want)
			continue
		}
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s may be read by others: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestLoginReadsALine of standard input, whoever holds that open further, or a file, or a variable.
func TestLoginReadsALine(t *testing.T) {
	address := aServer(t, false)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(onlyToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, env := range [][]string{nil, {"HORA_TOKEN=" + onlyToken}, {"HORA_TOKEN_FILE=" + file}} {
		home := t.TempDir()
		c := asUser(t, home, env, "login", address+"/")
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if env == nil {
			if _, err := io.WriteString(in, " "+onlyToken+"\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		var said bytes.Buffer
		c.Stdout, c.Stderr = &said, &said
		if err := c.Start(); err != nil { // the input stays open
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil || said.String() != "logged in to "+address+", hora 1.2.3\n" {
			t.Errorf("with %q: %v, %q", env, err, said.String())
		}
		in.Close()
		keeps(t, home, address)
	}
	for _, text := range []string{"", "\n"} {
		c := asUser(t, t.TempDir(), nil, "login", address)
		c.Stdin = strings.NewReader(text)
		if said, err := c.CombinedOutput(); err == nil || !strings.Contains(string(said), "there is no token on standard input") {
			t.Errorf("from %q: %v, %s", text, err, said)
		}
	}
}

// TestLoginAtATerminal ends with Enter, does not show the token, and leaves the terminal as it was, after Ctrl-C too.
func TestLoginAtATerminal(t *testing.T) {
	address := aServer(t, false)
	for typed, want := range map[string]string{
		onlyToken + "\n": "logged in to " + address + ", hora 1.2.3",
		"\x03":           "hora: stopped by SIGINT, and no token is kept",
	} {
		master, slave := terminal(t)
		home := t.TempDir()
		c := asUser(t, home, nil, "login", address)
		c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all := ""
		until := func(end string) {
			t.Helper()
			buf := make([]byte, 4096)
			for !strings.Contains(all, end) {
				n, err := master.Read(buf)
				if err != nil {
					t.Fatalf("the terminal shows %q, %v", all, err)
				}
				all += string(buf[:n])
			}
		}
		until("token, which is not shown: ")
		if _, err := io.WriteString(master, typed); err != nil {
			t.Fatal(err)
		}
		err := c.Wait()
		fmt.Fprintln(slave, "the end")
		until("the end")
		if !strings.Contains(all, want) || strings.Contains(all, onlyToken) {
			t.Errorf("after %q the terminal shows %q", typed, all)
		}
		if now, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil || now.Lflag&unix.ECHO == 0 {
			t.Errorf("after %q the terminal shows nothing of what is typed, %v", typed, err)
		}
		var exit *exec.ExitError
		switch stopped := errors.As(err, &exit); {
		case typed == "\x03" && !(stopped && exit.ExitCode() == launch.ExitSignal+int(syscall.SIGINT)):
			t.Errorf("stopped, it ended with %v", err)
		case typed != "\x03" && err != nil:
			t.Error(err)
		case typed != "\x03":
			keeps(t, home, address)
		}
	}
}

// TestManyJobsAreListed in as many calls as that takes: a server answers at most 1,000 at once.
func TestManyJobsAreListed(t *testing.T) {
	const jobs = 2500
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil || limit < 1 || limit > 1000 {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		last := jobs
		if c := r.URL.Query().Get("cursor"); c != "" {
			last, _ = strconv.Atoi(c)
		}
		var page client.Page
		for ; limit > 0 && last > 0; limit-- {
			page.Jobs = append(page.Jobs, client.Job{ID: int64(last), Document: client.Document{Priority: new(int)}})
			last--
		}
		if last > 0 {
			page.Next = strconv.Itoa(last)
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	t.Cleanup(s.Close)
	env := []string{"HORA_SERVER=" + s.URL, "HORA_TOKEN=" + onlyToken}
	for limit, want := range map[int]string{
		2200: "there are more: --limit 8800 shows them\n", 2500: "\n1 ", 4000: "\n1 ", 10: "--limit 40 shows them\n",
	} {
		said, err := asUser(t, t.TempDir(), env, "jobs", "--all", "--limit", strconv.Itoa(limit)).CombinedOutput()
		lines := 1 + min(limit, jobs)
		if limit < jobs {
			lines++
		}
		if n := strings.Count(string(said), "\n"); err != nil || n != lines || !strings.Contains(string(said), want) {
			t.Errorf("--limit %d: %v, %d lines, the last of them %q", limit, err, n, said[max(0, len(said)-200):])
		}
	}
	var exit *exec.ExitError
	said, err := asUser(t, t.TempDir(), env, "jobs", "--limit", "0").CombinedOutput()
	if !errors.As(err, &exit) || exit.ExitCode() != launch.ExitUsage || !strings.Contains(string(said), "give one from 1") {
		t.Errorf("--limit 0: %v, %s", err, said)
	}
}

// TestAServerThatIsNotThere has an exit code of its own, which is no job's end.
func TestAServerThatIsNotThere(t *testing.T) {
	env := []string{"HORA_SERVER=http://127.0.0.1:1", "HORA_TOKEN=" + onlyToken}
	said, err := asUser(t, t.TempDir(), env, "job", "1").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != launch.ExitHost || !strings.Contains(string(said), "start it with hora up") {
		t.Errorf("%v, %s", err, said)
	}
}

// TestAServerIsNamedWithASlash at the address's end, and keeps the authority that login was told of.
func TestAServerIsNamedWithASlash(t *testing.T) {
	address := aServer(t, true)
	bare, _, _ := strings.Cut(address, "#")
	home := t.TempDir()
	c := asUser(t, home, []string{"HORA_TOKEN=" + onlyToken}, "login", address)
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, said)
	}
	for _, named := range []string{bare, bare + "/"} {
		said, err := asUser(t, home, []string{"HORA_SERVER=" + named}, "jobs", "--json").CombinedOutput()
		if err != nil || string(said) != "[]\n" {
			t.Errorf("HORA_SERVER=%s: %v, %s", named, err, said)
		}
	}
}
