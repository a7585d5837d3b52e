package launch

import (
	"fmt"
	"strings"

	"hora/launch/reach"
)

// What becomes of the launcher's standard input: one rank of this machine may have it, all others read nothing.

// inputHost returns the host whose agent gets the launcher's standard input for its rank; -1 is none.
func (c *crew) inputHost() int {
	if c.spec.Stdin == nil || c.spec.StdinRank >= len(c.seats) {
		return -1
	}
	return c.seats[c.spec.StdinRank].Host
}

// input returns what a host's agent is to have of it; nil is nothing.
func (c *crew) input(host int) *reach.Input {
	if host != c.inputHost() {
		return nil
	}
	return &reach.Input{File: c.spec.Stdin, Rank: c.spec.StdinRank}
}

// possible asks the reach whether its hosts can do what the job asks for.
func (c *crew) possible() error {
	ask := &reach.Job{GPUs: c.spec.GPUsPerRank, Input: -1}
	for _, s := range c.seats {
		ask.Hosts = append(ask.Hosts, c.hosts[s.Host].Name)
	}
	if r := c.spec.StdinRank; c.spec.StdinAsked {
		if r >= len(c.seats) {
			return fault(ExitUsage, "--stdin %d: the ranks are 0 to %d: name one of them", r, len(c.seats)-1)
		}
		ask.Input = r
	}
	return c.spec.Reach.Refuse(ask)
}

// unfed are the last lines of Python programs that asked for input where there is none.
var unfed = [...]string{"EOFError: EOF when reading a line", "bdb.BdbQuit", "EOFError: reading from stdin"}

// howToDebug returns what a rank that asked for input in vain should hear, ": …", or "" for another failure.
func (c *crew) howToDebug(o *Outcome) string {
	asked := false
	for _, s := range unfed {
		asked = asked || strings.HasPrefix(o.Last, s)
	}
	if !asked || o.Rank < 0 || c.inputHost() >= 0 && o.Rank == c.spec.StdinRank {
		return ""
	}
	hand := fmt.Sprintf("HORA_RANK=%d HORA_SIZE=%d %s", o.Rank, len(c.seats), commandLine(c.spec.Command))
	if c.spec.NP == 1 {
		return fmt.Sprintf(": rank 0 reads nothing here: start it from a terminal, or by hand as %s", hand)
	}
	return fmt.Sprintf(": rank %d reads nothing here: give it this terminal with --stdin %d, or start every rank by hand in a terminal of its own, this one as %s", o.Rank, o.Rank, hand)
}

// commandLine returns a command as one would type it, cut where it is long or has lines.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		if words[i] = a; a == "" || strings.ContainsAny(a, " \t\r\n\"'`$;|&<>()*?[]\\#~!{}") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	const limit = 200
	text, _, more := strings.Cut(strings.Join(words, " "), "\n")
	if len(text) > limit {
		text, more = strings.ToValidUTF8(text[:limit], ""), true
	}
	if more {
		text += "…"
	}
	return text
}
