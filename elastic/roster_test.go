package elastic

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora/event"
)

// A roster's transcript is a story, too: lines that begin with ">" tell when what happened, the others what is ordered
// and what is said.
func TestRosterTranscripts(t *testing.T) {
	transcripts(t, "testdata/roster/*.txt", rehearse)
}

// rehearse plays a story. Time passes in ticks of a second between its lines, and at the moments that the roster wants.
func rehearse(t *testing.T, story string) string {
	t.Helper()
	var out bytes.Buffer
	var r *Roster
	var now time.Duration
	step := func(at time.Duration, n ...News) {
		now = at
		for _, o := range r.Step(at, n...) {
			fmt.Fprintf(&out, "  %v %s\n", at, tell(o))
		}
	}
	for line := range strings.Lines(story) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			out.WriteString(line)
		}
		if !strings.HasPrefix(line, "> ") {
			continue
		}
		f := strings.Fields(line[2:])
		if f[0] == "job" {
			out.WriteString(line)
			r, now = NewRoster(supply(t, f[1:])), 0
			continue
		}
		at, err := time.ParseDuration(f[0])
		if err != nil {
			t.Fatal(line, err)
		}
		for next := now.Truncate(time.Second) + time.Second; next < at; next = now.Truncate(time.Second) + time.Second {
			if wake, ok := r.Wake(); ok && wake > now && wake < next {
				next = wake
			}
			step(next, Tick{})
		}
		if wake, ok := r.Wake(); ok && wake > now && wake < at {
			step(wake, Tick{})
		}
		out.WriteString(line)
		var all []News
		for part := range strings.SplitSeq(strings.Join(f[1:], " "), " and ") {
			all = append(all, news(t, strings.Fields(part))...)
		}
		step(at, all...)
	}
	return out.String()
}

func supply(t *testing.T, f []string) Supply {
	t.Helper()
	c := Supply{Elastic: true, Wait: 10 * time.Minute}
	for _, kv := range f {
		k, v, _ := strings.Cut(kv, "=")
		n, _ := strconv.Atoi(v)
		switch k {
		case "np":
			c.Size = n
		case "min":
			c.Min = n
		case "max":
			c.Max = n
		case "restarts":
			c.Restarts = n
		case "on-loss":
			c.OnLoss = map[string]Policy{"stop": Stop, "replace": Replace, "continue": Continue}[v]
			c.Elastic = c.OnLoss != Stop
		case "blacklist":
			c.ByHost = v == "host"
		case "hosts":
			c.Hosts = hosts(v)
		case "discover":
			c.Discovered, c.OnLoss = true, Continue
		case "cool-down":
			from, to, _ := strings.Cut(v, "-")
			c.CoolMin, _ = time.ParseDuration(from)
			c.CoolMax, _ = time.ParseDuration(to)
		case "spread":
			share, _ := strconv.ParseFloat(v, 64)
			c.Spread = func() float64 { return share }
		case "wait":
			c.Wait, _ = time.ParseDuration(v)
		default:
			t.Fatalf("unknown setting %q", kv)
		}
	}
	return c
}

// hosts reads "a:2,b:1".
func hosts(text string) (all []Host) {
	for part := range strings.SplitSeq(text, ",") {
		name, n, ok := strings.Cut(part, ":")
		if slots, err := strconv.Atoi(n); ok && err == nil {
			all = append(all, Host{name, slots})
		}
	}
	return all
}

// news reads what follows the time: "up 0 1", "fails 1 exit code 3", "killed 1 killed by signal 9", "says 1 exit code 3:
// ValueError" (a failure with words), "leaves 1 SIGTERM", "finishes 1", "loses b silent for 10s", "notice b spot",
// "lists a:2,b:1", "cannot list exit status 1", "opens 2 size=3", "over" and "passes". What is heard at once is joined by
// "and".
func news(t *testing.T, f []string) (all []News) {
	t.Helper()
	rest := func(from int) string { return strings.Join(f[min(from, len(f)):], " ") }
	rank := -1
	if len(f) > 1 {
		rank, _ = strconv.Atoi(f[1])
	}
	switch f[0] {
	case "up":
		for _, word := range f[1:] {
			n, _ := strconv.Atoi(word)
			all = append(all, Up{n})
		}
		return all
	case "fails":
		return []News{Exit{Rank: rank, Cause: rest(2)}}
	case "killed":
		return []News{Exit{Rank: rank, Cause: "killed by signal 9", Killed: true}}
	case "says":
		return []News{Exit{Rank: rank, Cause: rest(2), Words: true}}
	case "leaves":
		return []News{Exit{Rank: rank, How: Farewell, Cause: "left before the work was done: " + rest(2)}}
	case "finishes":
		return []News{Exit{Rank: rank, How: Success, Cause: "finished"}}
	case "loses":
		return []News{HostLost{f[1], rest(2)}}
	case "notice":
		return []News{Notice{f[1], rest(2)}}
	case "lists":
		return []News{Listing{Hosts: hosts(rest(1))}}
	case "ends":
		return []News{Listing{End: true}}
	case "cannot":
		return []News{Unlisted{"ask ./hosts.sh for hosts: " + rest(2)}}
	case "opens":
		o := Opened{}
		fmt.Sscanf(rest(1), "%d size=%d", &o.Epoch, &o.Size)
		return []News{o}
	case "over":
		return []News{Over{}}
	case "passes":
		return []News{Tick{}}
	}
	t.Fatalf("unknown news %v", f)
	return nil
}

func tell(o Order) string {
	switch o := o.(type) {
	case Begin:
		return fmt.Sprintf("begin with %d ranks on %v", o.Size, o.Hosts)
	case Start:
		more := ""
		if o.New {
			more = ", one more"
		}
		return fmt.Sprintf("start rank %d on slot %d of %s%s", o.Rank, o.At.Slot, o.At.Host, more)
	case Ask:
		return fmt.Sprintf("ask rank %d to leave: %s", o.Rank, o.Cause)
	case Stay:
		return fmt.Sprintf("let rank %d stay", o.Rank)
	case GiveUp:
		return strings.TrimSpace("give up " + strings.TrimPrefix(o.Text, ": "))
	case Tell:
		return told(o.Event)
	}
	return fmt.Sprintf("an order of another kind: %T", o)
}

func told(e event.Event) string {
	switch e := e.(type) {
	case *event.Hosts:
		return fmt.Sprintf("say: hosts at hand %v", e.Hosts)
	case *event.Warning, *event.Banned:
		return "warn: " + e.String()
	case *event.Restarted:
		if e.In > 0 {
			return fmt.Sprintf("say: %v (in %v)", e, e.In)
		}
	}
	return "say: " + e.String()
}
