package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"hora/internal/secret"
)

// private is the folder for what the workers of this host alone may read: the job's secret, its call, and what workers
// leave.
type private struct {
	secret string   // hex, as the launcher has told it
	dir    string   // "" where there is no secret to keep
	lock   *os.File // that folder, locked: whoever finds it unlocked knows that its agent is gone
}

// keep makes the folder and writes the secret, where known is zero the launcher's.
func (p *private) keep(temp string, known secret.Secret) error {
	if known.IsZero() && p.secret == "" {
		return nil
	}
	if known.IsZero() {
		parsed, err := secret.Parse([]byte(p.secret))
		if err != nil {
			return err
		}
		known = parsed
	}
	var err error
	p.dir, err = os.MkdirTemp(temp, secretPattern(os.Getpid()))
	if err != nil {
		return fmt.Errorf("make the secret's directory: %w; set TMPDIR to a directory with room", err)
	}
	if p.lock, err = os.Open(p.dir); err == nil {
		_ = syscall.Flock(int(p.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // else its process tells
	}
	return known.WriteFile(filepath.Join(p.dir, "secret"))
}

// remove removes the folder with all that is in it.
func (p *private) remove() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
		p.lock.Close()
	}
}
