package mem

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Action is what a Fault does.
type Action uint8

// The faults.
const (
	Kill Action = iota // rank From dies instead of sending its At-th message
	// from its At-th message on, nothing that From sends reaches To, whatever else is scripted; found out after the
	// peer timeout
	Cut
	Drop   // the At-th message From sends to To is lost and the link breaks at once
	Delay  // every message From sends to To, from the At-th on, takes For
	Garble // the At-th message From sends to To carries another fingerprint
	Leave  // rank From closes its mesh in order instead of sending its At-th message
)

var actionNames = [...]string{"kill", "cut", "drop", "delay", "garble", "leave"}

// A Fault happens to one rank or on one link, at a message counted from 1.
type Fault struct {
	Do       Action
	From, To int
	At       int
	For      time.Duration
}

// A Script is the faults of one run, in any order.
type Script []Fault

// String is the text that ParseScript reads.
func (s Script) String() string {
	parts := make([]string, len(s))
	for i, f := range s {
		switch f.Do {
		case Kill, Leave:
			parts[i] = fmt.Sprintf("%s %d at %d", actionNames[f.Do], f.From, f.At)
		case Delay:
			parts[i] = fmt.Sprintf("delay %d>%d by %v at %d", f.From, f.To, f.For, f.At)
		default:
			parts[i] = fmt.Sprintf("%s %d>%d at %d", actionNames[f.Do], f.From, f.To, f.At)
		}
	}
	return strings.Join(parts, "; ")
}

// ParseScript reads faults separated by semicolons:
//
//	kill 3 at 5; leave 2 at 1; cut 1>2 at 4; drop 1>2 at 4; garble 0>1 at 1; delay 0>1 by 5ms at 1
//
// "at N" counts messages from 1 and may be left out, which means 1.
func ParseScript(text string) (Script, error) {
	var s Script
	for _, part := range strings.Split(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		f, err := parseFault(words)
		if err != nil {
			return nil, fmt.Errorf("parse fault %q: %w", strings.TrimSpace(part), err)
		}
		s = append(s, f)
	}
	return s, nil
}

func parseFault(words []string) (Fault, error) {
	f := Fault{At: 1, To: -1}
	do := -1
	for i, name := range actionNames {
		if name == words[0] {
			do = i
		}
	}
	if do < 0 {
		return f, fmt.Errorf("want one of %s", strings.Join(actionNames[:], ", "))
	}
	f.Do = Action(do)
	if len(words) < 2 || len(words)%2 != 0 {
		return f, fmt.Errorf("want an action, a rank or link, and pairs of a word and a value")
	}
	from, to, link := strings.Cut(words[1], ">")
	if link == (f.Do == Kill || f.Do == Leave) {
		return f, fmt.Errorf("kill and leave take a rank, the others a link as 1>2")
	}
	var err error
	if f.From, err = strconv.Atoi(from); err != nil {
		return f, err
	}
	if link {
		if f.To, err = strconv.Atoi(to); err != nil {
			return f, err
		}
	}
	for i := 2; i < len(words); i += 2 {
		switch words[i] {
		case "at":
			f.At, err = strconv.Atoi(words[i+1])
		case "by":
			f.For, err = time.ParseDuration(words[i+1])
		default:
			err = fmt.Errorf("%q is neither at nor by", words[i])
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}
