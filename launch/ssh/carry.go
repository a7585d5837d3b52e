package ssh

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"hora/launch/protocol"
)

// bootstrap is what the remote shell runs: it says what machine it is and whether the program for it is there, takes it
// from standard input when it is not, and becomes the agent. PROGRAMS are the branches of programs at hand, each with
// its hash and size. A copy is checked by its hash when it comes and whenever it has changed since it was checked,
// which a file beside it tells; looking at 14 MB at every start would take longer than all else together. What was
// copied a month ago goes when another version comes. It holds no single quote, since the login shell sees it within
// some.
const bootstrap = `m=$(uname -sm); case "$m" in PROGRAMS*) echo READY other $m; exit 1;; esac; ` +
	`d="${HORA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hora}/bin"; f="$d/hora-$h"; k="$d/.checked-$h"; ` +
	`sum() { if command -v sha256sum >/dev/null 2>&1; then sha256sum <"$1" | cut -c1-64; else wc -c <"$1" | tr -d " "; fi; }; ` +
	`good() { s=$(sum "$1"); [ "$s" = $h ] || [ "$s" = $n ]; }; ` +
	`known() { [ $(wc -c <"$f") -eq $n ] && [ -e "$k" ] && ! [ "$f" -nt "$k" ]; }; ` +
	`if [ -x "$f" ] && { known || good "$f"; }; then [ -e "$k" ] && ! [ "$f" -nt "$k" ] || touch "$k" 2>/dev/null; echo READY have $m; else ` +
	`echo READY need $m; umask 077; mkdir -p "$d" && head -c $n >"$f.$$" && good "$f.$$" && chmod 700 "$f.$$" && mv "$f.$$" "$f" && touch "$k" && find "$d" -name "*-*" -mtime +30 -exec rm -f {} + || ` +
	`{ rm -f "$f.$$"; echo "cannot keep the program in $d" >&2; exit 1; }; echo READY kept; fi; exec "$f" __agent WORDS`

// machines is what uname -sm says, and what Go calls it.
var machines = map[string]string{
	"Linux x86_64": "linux-amd64", "Linux aarch64": "linux-arm64", "Darwin x86_64": "darwin-amd64", "Darwin arm64": "darwin-arm64",
}

// carried is this program as it is copied to other hosts, and those for other machines that lie beside it under the
// name hora-linux-arm64 and the like.
type carried struct {
	machine, path, hash string // machine is what uname -sm says there
	size                int64
	others              []*carried
}

func (r *Reach) carry() (*carried, error) {
	if r.program != nil || r.cfg.RemoteHora != "" {
		return r.program, nil
	}
	program, err := weigh(machineName(), r.cfg.Binary)
	if err != nil {
		return nil, protocol.Fault(protocol.ExitSystem, "read this program to copy it: %v: give --remote-hora PATH", err)
	}
	for machine := range machines {
		if machine == program.machine {
			continue
		}
		if other, err := weigh(machine, program.beside(machine)); err == nil {
			program.others = append(program.others, other)
		}
	}
	r.program = program
	return program, nil
}

// weigh reads a program for its hash and size.
func weigh(machine, path string) (*carried, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return nil, err
	}
	return &carried{machine: machine, path: path, hash: hex.EncodeToString(h.Sum(nil)), size: n}, nil
}

// beside returns where the program for another machine is looked for.
func (c *carried) beside(machine string) string {
	name := machines[machine]
	if name == "" {
		name = strings.ToLower(strings.ReplaceAll(machine, " ", "-"))
	}
	return filepath.Join(filepath.Dir(c.path), "hora-"+name)
}

// of returns the program for a machine, nil when there is none.
func (c *carried) of(machine string) *carried {
	for _, p := range append([]*carried{c}, c.others...) {
		if p.machine == machine {
			return p
		}
	}
	return nil
}

// script returns bootstrap for these programs and an agent that is told some words.
func (c *carried) script(words string) string {
	var branches strings.Builder
	for _, p := range append([]*carried{c}, c.others...) {
		fmt.Fprintf(&branches, `"%s") h=%s; n=%d;; `, p.machine, p.hash, p.size)
	}
	return strings.NewReplacer("PROGRAMS", branches.String(), "READY", reached, "WORDS", words).Replace(bootstrap)
}

// greet reads what the remote script says, and sends it the program if it needs it.
func (w *Way) greet(rd *bufio.Reader) error {
	word, machine, err := w.awaitReady(rd)
	if err != nil {
		return err
	}
	switch {
	case word == "have":
	case w.program == nil:
		return errors.New("it asks for a program")
	case word == "need" && w.program.of(machine) != nil:
		p := w.program.of(machine)
		w.size.Store(p.size)
		if err := copyProgram(w.in, p.path, &w.copied); err != nil {
			return err
		}
		if _, _, err := w.awaitReady(rd); err != nil {
			return err
		}
	default:
		return fmt.Errorf("it is a %s machine and this hora is built for %s: put one for it beside this one as %s, or install it there and give --remote-hora PATH",
			machine, w.program.machine, w.program.beside(machine))
	}
	return nil
}

// awaitReady reads up to the script's next word and the machine that it names.
func (w *Way) awaitReady(rd *bufio.Reader) (word, machine string, err error) {
	for range 1000 { // lines of a talkative login shell
		line, err := rd.ReadString('\n')
		if err != nil {
			return "", "", err
		}
		if f := strings.Fields(line); len(f) >= 2 && f[0] == reached {
			return f[1], strings.Join(f[2:], " "), nil
		}
	}
	return "", "", errors.New("its login shell prints too much: make it silent for ssh commands")
}

// machineName returns what uname -sm says of machines like this one.
func machineName() string {
	for machine, name := range machines {
		if name == runtime.GOOS+"-"+runtime.GOARCH {
			return machine
		}
	}
	return runtime.GOOS + " " + runtime.GOARCH
}

// copyProgram sends a file, and counts what has been sent.
func copyProgram(to *os.File, path string, sent *atomic.Int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		n, err := io.CopyN(to, f, 1<<18)
		sent.Add(n)
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return fmt.Errorf("copy the program there: %w", err)
		}
	}
}
