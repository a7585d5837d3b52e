package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora"
)

func TestRoundsHoldEveryPairOnce(t *testing.T) {
	for _, n := range []int{2, 3, 8, 9, 16, 33} {
		seen := map[[2]int]bool{}
		for _, round := range Rounds(n) {
			busy := map[int]bool{}
			for _, p := range round {
				if p[0] >= p[1] || seen[p] || busy[p[0]] || busy[p[1]] {
					t.Fatalf("%d ranks: pair %v in %v", n, p, round)
				}
				seen[p], busy[p[0]], busy[p[1]] = true, true, true
			}
			if n <= netAtOnce && len(round) != 1 {
				t.Errorf("%d ranks: %d pairs at a time", n, len(round))
			}
		}
		if len(seen) != n*(n-1)/2 {
			t.Errorf("%d ranks: %d pairs", n, len(seen))
		}
	}
}

// among makes figures of n hosts with equal ways.
func among(n int, latency, rate float64) *Net {
	net := &Net{}
	for a := range n {
		net.Hosts = append(net.Hosts, "h"+strconv.Itoa(a))
		net.Clocks = append(net.Clocks, Clock{Host: "h" + strconv.Itoa(a)})
		for b := range n {
			if a != b {
				net.Pairs = append(net.Pairs, Pair{
					From: "h" + strconv.Itoa(a), To: "h" + strconv.Itoa(b),
					Latency: latency, Rate: rate,
				})
			}
		}
	}
	return net
}

func TestPredictionFollowsTheModel(t *testing.T) {
	net := among(4, 50, 8) // 8 Gbit/s: 0.001 µs a byte
	for _, c := range []struct {
		bytes int
		want  float64
	}{
		{0, 100}, // two steps of recursive doubling
		{1000, 102},
		{1_000_000, 4*50 + 1500}, // halving and doubling: 2·log n messages, 2(n-1)/n of the bytes
	} {
		if got := net.Predict(c.bytes); got < c.want*0.999 || got > c.want*1.001 {
			t.Errorf("%d bytes: %v µs, want %v", c.bytes, got, c.want)
		}
	}
	net.Pairs[3].Rate = 4 // one slow way sets the pace
	if got := net.Predict(1_000_000); got < 3199 || got > 3201 {
		t.Errorf("with a slow way: %v", got)
	}
}

func TestAdviceNamesWhatLimits(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*Net)
	}{
		{"even", "All ways are alike", func(*Net) {}},
		{"a slow way", "From h0 to h2 runs at 1 Gbit/s where the others have 10", func(n *Net) { n.Pairs[1].Rate = 1 }},
		{"a far host", "A message from h0 to h1 takes 40 ms", func(n *Net) { n.Pairs[0].Latency = 40_000 }},
		{"processors", "processors are the limit", func(n *Net) { n.Allreduce = []Predicted{{1 << 20, 100, 900}} }},
		{"latency", "tensors below", func(n *Net) {
			for i := range n.Pairs {
				n.Pairs[i].Latency = 5000
			}
		}},
		{"bandwidth", "send them in 16 bits", func(n *Net) {
			for i := range n.Pairs {
				n.Pairs[i].Rate = 0.5
			}
		}},
	} {
		n := among(3, 50, 10)
		c.change(n)
		got := n.advise()
		if !strings.Contains(got, c.want) || strings.Count(got, ". ") > 0 || !strings.HasSuffix(got, ".") {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// TestAdviceBetweenTwoHosts: neither can be left out, and the other way is the only other.
func TestAdviceBetweenTwoHosts(t *testing.T) {
	n := among(2, 50, 10)
	if got := n.advise(); !strings.Contains(got, "All ways are alike") {
		t.Errorf("%q", got)
	}
	n.Pairs[0].Rate, n.Pairs[1].Rate = 40, 400
	if got := n.advise(); !strings.Contains(got, "From h0 to h1 runs at 40 Gbit/s and the other way at 400, ") || strings.Contains(got, "leave") {
		t.Errorf("%q", got)
	}
	n = among(3, 250, 0.01)
	if got := n.advise(); !strings.Contains(got, "At 0.01 Gbit/s the gradients of 100 million float32 parameters take 427 s a step") {
		t.Errorf("%q", got)
	}
}

// Real processes are in cmd/hora; here three ranks of one process talk over real sockets.
func TestFiguresBetweenThreeRanks(t *testing.T) {
	peers := make([]string, 3)
	for i := range peers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		peers[i] = ln.Addr().String()
		ln.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	secret := hora.NewSecret()
	errs := make(chan error, 3)
	var out bytes.Buffer
	for r := range peers {
		go func() {
			w := &out
			if r > 0 {
				w = &bytes.Buffer{}
			}
			errs <- Measure(ctx, hora.Config{
				Rank: r, Size: 3, Peers: peers, Host: "h" + strconv.Itoa(r), HostID: strconv.Itoa(r), Links: "tcp",
				Secret: secret,
			}, w)
		}()
	}
	for range peers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	var n Net
	if err := json.Unmarshal(out.Bytes(), &n); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if len(n.Pairs) != 6 || len(n.Allreduce) < 3 || n.Advice == "" {
		t.Errorf("%+v", n)
	}
	for _, p := range n.Pairs {
		if p.Latency <= 0 || p.Rate <= 0 {
			t.Errorf("%+v", p)
		}
	}
	for _, c := range n.Clocks { // one clock
		if c.Offset > c.Bound+1 || c.Offset < -c.Bound-1 {
			t.Errorf("%+v", c)
		}
	}
	var page bytes.Buffer
	if err := n.WritePage(&page); err != nil || !strings.Contains(page.String(), "Gbit/s") ||
		!strings.Contains(page.String(), n.Advice) {
		t.Errorf("%v\n%s", err, page.String())
	}
}
