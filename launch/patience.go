package launch

import (
	"fmt"
	"strings"
	"time"
)

// Who waits for long is told for what: after firstWord, and again after lastWord at most.
const (
	firstWord = 2 * time.Second
	lastWord  = 30 * time.Second
)

// patience is one wait. The zero value begins when due is first asked.
type patience struct {
	began, told time.Time
	pause       time.Duration
}

// due says whether it is time for a word.
func (p *patience) due(now time.Time) bool {
	if p.began.IsZero() {
		p.began, p.told, p.pause = now, now, firstWord
	}
	if now.Sub(p.told) < p.pause {
		return false
	}
	p.told, p.pause = now, min(2*p.pause, lastWord)
	return true
}

// list names a few of many.
func list(names []string) string {
	const few = 4
	if len(names) > few {
		return strings.Join(names[:few], ", ") + fmt.Sprintf(" and %d more", len(names)-few)
	}
	return strings.Join(names, ", ")
}
