package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"hora/launch"
	"hora/probe"
)

// Hosts is how ExamineHosts reaches other hosts; tests replace both.
type Hosts struct {
	// Page returns what `hora doctor --json` prints on a host.
	Page func(ctx context.Context, host string) (string, error)
	// Net measures between hosts that could be reached.
	Net func(ctx context.Context, hosts []string) (*probe.Net, error)
}

// Bounds from which a figure between hosts is worth a word.
const (
	clockNote   = 20.0 // ms
	latencyNote = 1000 // µs
	rateNote    = 0.9  // Gbit/s
	unevenNote  = 0.5  // of the median rate
)

// ExamineHosts runs the checks on every host, all at once, and then looks at the network between those that answered.
// It returns the figures of that network, nil where there are none.
func ExamineHosts(ctx context.Context, names []string, h Hosts) ([]Finding, *probe.Net) {
	pages := make([][]Finding, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { pages[i] = h.page(ctx, name) })
	}
	all.Wait()
	var found []Finding
	var up []string
	for i, name := range names {
		found = append(found, pages[i]...)
		if len(pages[i]) > 1 || len(pages[i]) == 1 && pages[i][0].Topic != reachTopic {
			up = append(up, name)
		}
	}
	if len(up) < 2 {
		return found, nil
	}
	net, err := h.Net(ctx, up)
	if err != nil {
		return append(found, Finding{
			Host: between, Topic: "network", State: Problem, Text: err.Error(),
			Do: "open the TCP ports between these hosts, or name a network that joins them with --network-interface",
		}), nil
	}
	return append(found, judge(net)...), net
}

const (
	reachTopic = "ssh"
	between    = "between the hosts"
)

func (h *Hosts) page(ctx context.Context, name string) []Finding {
	text, err := h.Page(ctx, name)
	if err != nil {
		return []Finding{unreachable(name, err)}
	}
	var page struct {
		Findings []Finding `json:"findings"`
	}
	if at := strings.IndexByte(text, '{'); at > 0 {
		text = text[at:] // what a login shell printed
	}
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Findings) == 0 {
		return []Finding{{
			Host: name, Topic: "hora", State: Problem, Text: fmt.Sprintf("its answer cannot be read: %.80q", text),
			Do: fmt.Sprintf("look at what ssh %s hora doctor prints", name),
		}}
	}
	for i := range page.Findings {
		page.Findings[i].Host = name
	}
	return page.Findings
}

// unreachable is a finding from the launcher's sentence, which ends in what to do.
func unreachable(name string, err error) Finding {
	text := err.Error()
	var known *launch.Error
	if !errors.As(err, &known) {
		return Finding{Host: name, Topic: reachTopic, State: Problem, Text: text, Do: "try ssh " + name + " true"}
	}
	text, do := strings.TrimPrefix(known.Text, "reach host "+name+": "), ""
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text, do = text[:at], text[at+2:]
	}
	if commands, ok := strings.CutPrefix(do, "set up a key with "); ok {
		do = strings.Replace(commands, " and ", "; ", 1)
	}
	return Finding{Host: name, Topic: reachTopic, State: Problem, Text: text, Do: do}
}

// judge makes findings of figures.
func judge(net *probe.Net) []Finding {
	var out []Finding
	add := func(topic string, f Finding) {
		f.Host, f.Topic = between, topic
		out = append(out, f)
	}
	median := middle(net.Pairs)
	for _, p := range net.Pairs {
		text := fmt.Sprintf("%s → %s: %.0f µs, %.2f Gbit/s", p.From, p.To, p.Latency, p.Rate)
		switch {
		case p.Rate < unevenNote*median:
			add("network", problem("look at the cable, port and route of "+p.From+" and "+p.To+": every collective waits for the slowest way",
				"%s, where the others have %.2f", text, median))
		case p.Rate < rateNote:
			add("network", note("name a faster network with --network-interface, or send gradients in 16 bits", "%s", text))
		case p.Latency > latencyNote:
			add("network", note("use hosts that are nearer to each other, or communicate less often", "%s", text))
		default:
			add("network", Finding{State: Good, Text: text})
		}
	}
	for _, c := range net.Clocks {
		off := max(c.Offset, -c.Offset)
		if c.Host == net.Hosts[0] {
			continue
		}
		text := fmt.Sprintf("%s is %+.1f ms beside %s", c.Host, c.Offset, net.Hosts[0])
		if off-c.Bound > clockNote {
			add("clocks", note("start chrony or systemd-timesyncd on both: times in logs and certificates do not agree", "%s", text))
			continue
		}
		add("clocks", Finding{State: Good, Text: text})
	}
	if len(net.Same) > 0 {
		add("network", note("name each machine once", "%s and %s are two names of one machine: what is between them is no network", net.Same[0][0], net.Same[0][1]))
		return out
	}
	for _, a := range net.Allreduce {
		add("allreduce", Finding{State: Good, Text: fmt.Sprintf("%s: %.0f µs, the network lets expect %.0f", probe.SizeText(a.Bytes), a.Measured, a.Predicted)})
	}
	add("advice", Finding{State: Good, Text: net.Advice})
	return out
}

// middle is the median rate.
func middle(pairs []probe.Pair) float64 {
	above := func(x float64) (n int) {
		for _, p := range pairs {
			if p.Rate > x {
				n++
			}
		}
		return n
	}
	best := 0.0
	for _, p := range pairs {
		if above(p.Rate) <= len(pairs)/2 && (best == 0 || p.Rate < best) {
			best = p.Rate
		}
	}
	return best
}
