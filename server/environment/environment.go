// Package environment makes the Python environments of jobs on a node: what a job asks for is resolved into a lock,
// and each lock has one environment, which all jobs with that lock share. It stands on the pool's interpreter: the
// packages that one has are seen through it and are not installed again.
//
// A folder has the environments, and one process at a time makes each. It decides nothing about jobs, and starts a
// goroutine a wait for a lock, which ends with it.
package environment

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"hora/server/client"
)

// script does what an interpreter alone can say: which packages it has, what fits to them, and the installation.
//
//go:embed make.py
var script string

// Place is where the environments of a node are.
type Place struct {
	Dir     string                      // theirs alone
	Environ []string                    // for the programs that make them
	Say     func(text string, own bool) // hears lines as they come: our own, or of the program that installs
}

// Made is an environment that is there. It stays until it is closed.
type Made struct {
	Folder string
	Base   string   // the interpreter that it stands on
	Lock   []string // what is installed, as requirements
	Cached bool     // it was there
	Took   time.Duration
	held   *os.File
}

// Bin is the folder of its programs.
func (m *Made) Bin() string { return filepath.Join(m.Folder, "bin") }

// Close lets the environment be removed when there are too many.
func (m *Made) Close() error { return m.held.Close() }

// String tells of it in words.
func (m *Made) String() string {
	text := "environment " + filepath.Base(m.Folder)
	switch n := len(m.Lock); n {
	case 0:
		text += ", for which the interpreter has all that is asked"
	case 1:
		text += " with 1 package beside the interpreter's"
	default:
		text += fmt.Sprintf(" with %d packages beside the interpreter's", n)
	}
	if m.Cached {
		return text + ", which was there"
	}
	return text + fmt.Sprintf(", made in %v", m.Took.Round(10*time.Millisecond))
}

// Make answers the environment that a job asks for, and makes it where it is not there. Who asks for one that is being
// made waits for it.
func (p *Place) Make(ctx context.Context, e *client.Environment) (*Made, error) {
	begin := time.Now()
	base, err := interpreter()
	if err != nil {
		return nil, err
	}
	question, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte(base+"\x00"), question...))
	key := hex.EncodeToString(sum[:8])
	for _, name := range []string{requestsName, environmentsName} {
		if err := os.MkdirAll(filepath.Join(p.Dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	if m := p.find(key, syscall.LOCK_NB); m != nil {
		m.Base, m.Cached, m.Took = base, true, time.Since(begin)
		return m, nil
	}
	turn, err := p.turn(ctx, key)
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	m := p.find(key, syscall.LOCK_NB) // somebody else may have made it meanwhile
	cached := m != nil
	if m == nil {
		if err := p.build(ctx, base, key, question); err != nil {
			return nil, err
		}
		if m = p.find(key, 0); m == nil {
			return nil, errors.New("it was made, and is gone: submit the job again")
		}
	}
	m.Base, m.Cached, m.Took = base, cached, time.Since(begin)
	return m, nil
}

// The folders of a Place.
const (
	requestsName     = "requests"     // what was asked, and which environment answers it
	environmentsName = "environments" // by the hash of their locks
)

// interpreter is the pool's: the one that a job's command would start.
func interpreter() (string, error) {
	for _, name := range []string{"python", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", errors.New("there is neither python nor python3 in PATH on this node: install Python, or leave --pip and --env out")
}

// request is what is known of a question that was answered before.
type request struct {
	Environment string           `json:"environment"`
	Lock        []string         `json:"lock"`
	Site        map[string]int64 `json:"site"` // the interpreter's folders of packages, and when each changed last
}

// find answers an environment that is there and fits to what the interpreter has now; nil for none. With LOCK_NB it
// does not wait for who makes or removes one.
func (p *Place) find(key string, wait int) *Made {
	b, err := os.ReadFile(filepath.Join(p.Dir, requestsName, key+".json"))
	if err != nil {
		return nil
	}
	var r request
	if json.Unmarshal(b, &r) != nil || r.Environment == "" {
		return nil
	}
	for dir, changed := range r.Site {
		info, err := os.Stat(dir)
		if err != nil || info.ModTime().UnixNano() != changed {
			return nil
		}
	}
	folder := filepath.Join(p.Dir, environmentsName, r.Environment)
	held, err := os.OpenFile(folder+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil
	}
	complete := filepath.Join(folder, completeName)
	if lock(held, syscall.LOCK_SH|wait) != nil { // it is being removed, or made
		held.Close()
		return nil
	}
	now := time.Now()
	if os.Chtimes(complete, now, now) != nil { // the one that was used least lately is removed first
		held.Close()
		return nil
	}
	return &Made{Folder: folder, Lock: r.Lock, held: held}
}

// completeName is the file that an environment has when all of it is there.
const completeName = "complete"

func lock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// turn waits until nobody else makes what a question asks for.
func (p *Place) turn(ctx context.Context, key string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(p.Dir, requestsName, key+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if lock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return f, nil
	}
	p.Say("another job has it made, and this one waits for that", true)
	done := make(chan error, 1)
	go func() { done <- lock(f, syscall.LOCK_EX) }()
	select {
	case err := <-done:
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	case <-ctx.Done():
		go func() { <-done; f.Close() }()
		return nil, ctx.Err()
	}
}

// hidden are variables that would make the interpreter see other packages than its own.
var hidden = []string{"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "CONDA_PREFIX"}

// Unresolved is for packages that are not there, or do not go together, however often somebody tries.
type Unresolved struct{ Text string }

func (e *Unresolved) Error() string { return e.Text }

func (p *Place) build(ctx context.Context, base, key string, question []byte) error {
	c := exec.CommandContext(ctx, base, "-c", script, p.Dir, key)
	c.Dir, c.Stdin = p.Dir, bytes.NewReader(question)
	for _, kv := range p.Environ {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.Contains(hidden, name) {
			c.Env = append(c.Env, kv)
		}
	}
	c.Env = append(c.Env, "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1", "PYTHONIOENCODING=utf-8")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", base, err)
	}
	bad, never := "", false
	in := bufio.NewScanner(out)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		kind, text, _ := strings.Cut(in.Text(), " ")
		switch kind {
		case "say":
			p.Say(text, true)
		case "out":
			p.Say(text, false)
		case "bad", "never":
			bad, never = text, kind == "never"
		}
	}
	err = c.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case never:
		return &Unresolved{bad}
	case bad != "":
		return errors.New(bad)
	case err != nil:
		for line := range strings.SplitSeq(strings.TrimSpace(errs.String()), "\n") {
			p.Say(line, false)
		}
		return fmt.Errorf("%s: %w: the lines above tell why", base, err)
	}
	return nil
}
