package elastic

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// A transcript is a story: lines that begin with ">" are events, the others what the machine does.
func TestTranscripts(t *testing.T) {
	transcripts(t, "testdata/*.txt", replay)
}

// transcripts plays the stories that a pattern names and compares them with what was written down.
func transcripts(t *testing.T, pattern string, play func(t *testing.T, story string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *update {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func replay(t *testing.T, story string) string {
	t.Helper()
	var out bytes.Buffer
	var m *Machine
	for line := range strings.Lines(story) {
		switch {
		case strings.HasPrefix(line, "#"), strings.TrimSpace(line) == "":
			out.WriteString(line)
		case strings.HasPrefix(line, "> "):
			out.WriteString(line)
			f := strings.Fields(line[2:])
			if f[0] == "job" {
				m = New(job(t, f[1:]))
				continue
			}
			for _, a := range m.Step(happening(t, f)) {
				out.WriteString("  " + describe(a) + "\n")
			}
			if ranks, n := m.Missing(4); n > 0 && m.Waiting() > 0 {
				fmt.Fprintf(&out, "  (waits for %d more: %v)\n", n, ranks)
			}
		}
	}
	return out.String()
}

func job(t *testing.T, f []string) Config {
	t.Helper()
	var c Config
	for _, kv := range f {
		k, v, _ := strings.Cut(kv, "=")
		n, _ := strconv.Atoi(v)
		switch k {
		case "size":
			c.Size = n
		case "min":
			c.Min = n
		case "max":
			c.Max = n
		case "resets":
			c.Resets = n
		case "on-loss":
			c.OnLoss = map[string]Policy{"stop": Stop, "replace": Replace, "continue": Continue}[v]
		default:
			t.Fatalf("unknown setting %q", kv)
		}
	}
	return c
}

// happening reads "join w3 rank=1 on b", "leave w3", "lost w3 killed by signal 9", "lost rank=2 on b exit code 1", "finished 2".
func happening(t *testing.T, f []string) Event {
	t.Helper()
	if f[0] == "end" {
		return End{Reason: strings.Join(f[1:], " ")}
	}
	var w, rank int
	if strings.HasPrefix(f[1], "rank=") {
		fmt.Sscanf(f[1], "rank=%d", &rank)
	} else {
		fmt.Sscanf(strings.TrimPrefix(f[1], "w"), "%d", &w)
	}
	switch f[0] {
	case "join":
		j := Join{Worker: Worker(w), Rank: -1}
		for i, word := range f[2:] {
			fmt.Sscanf(word, "rank=%d", &j.Rank)
			fmt.Sscanf(word, "size=%d", &j.Size)
			fmt.Sscanf(word, "process=%s", &j.Process)
			if word == "on" {
				j.Host = f[i+3]
			}
		}
		return j
	case "leave":
		return Leave{Worker: Worker(w)}
	case "lost":
		l := Lost{Worker: Worker(w), Rank: rank, Reason: strings.Join(f[2:], " ")}
		if f[2] == "on" {
			l.Host, l.Reason = f[3], strings.Join(f[4:], " ")
		}
		return l
	case "finished":
		return Finished{Rank: w}
	case "absent", "present":
		return Absent{Rank: rank, Is: f[0] == "absent"}
	case "coming", "more", "came":
		c := Coming{Rank: rank, Is: f[0] != "came", More: f[0] == "more"}
		for _, word := range f[2:] {
			fmt.Sscanf(word, "process=%s", &c.Process)
		}
		return c
	case "done":
		return Done{Worker: Worker(w)}
	case "drain":
		return Drain{Worker: Worker(w), Reason: strings.Join(f[2:], " ")}
	}
	t.Fatalf("unknown event %v", f)
	return nil
}

func describe(a Action) string {
	switch a := a.(type) {
	case Open:
		var b strings.Builder
		fmt.Fprintf(&b, "epoch %d opens:", a.Epoch)
		for _, p := range a.Members {
			fmt.Fprintf(&b, " %d=w%d@%s(%d/%d,%d/%d)", p.Rank, p.Worker, p.Host, p.LocalRank, p.LocalSize, p.CrossRank, p.CrossSize)
		}
		return b.String()
	case Ended:
		how := "ends"
		if a.Parted {
			how = "ends after its last operation"
		}
		return fmt.Sprintf("epoch %d %s: rank %d on %q: %s", a.Epoch, how, a.Rank, a.Host, a.Reason)
	case Left:
		return fmt.Sprintf("rank %d on %s left epoch %d", a.Rank, a.Host, a.Epoch)
	case Changed:
		return fmt.Sprintf("a newcomer on %s waits beside epoch %d", a.Host, a.Epoch)
	case Complete:
		return fmt.Sprintf("epoch %d is complete", a.Epoch)
	case Refuse:
		return fmt.Sprintf("w%d is refused: %s", a.Worker, a.Reason)
	}
	return fmt.Sprintf("%#v", a)
}

// TestHistories steps machines through random events and checks what must always hold.
func TestHistories(t *testing.T) {
	for seed := range int64(400) {
		if err := history(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func history(seed int64) error {
	rnd := rand.New(rand.NewSource(seed))
	size := 1 + rnd.Intn(6)
	policy := Policy(rnd.Intn(3))
	m := New(Config{Size: size, Min: 1 + rnd.Intn(size), Max: size + rnd.Intn(3), OnLoss: policy})
	next := Worker(0)
	waiting, member := map[Worker]bool{}, map[Worker]bool{}
	epoch := uint64(0)
	for range 200 {
		var e, then Event
		switch pick := rnd.Intn(10); {
		case epoch == 0 && rnd.Intn(8) == 0:
			e = Absent{Rank: rnd.Intn(size), Is: rnd.Intn(3) > 0}
		case rnd.Intn(400) == 0:
			e = End{Reason: "asked to"}
		case pick < 5:
			next++
			e = Join{Worker: next, Rank: rnd.Intn(size+1) - 1, Host: fmt.Sprintf("h%d", rnd.Intn(3))}
			waiting[next] = true
		case pick < 7:
			w := some(rnd, member)
			e = Join{Worker: w, Rank: -1, Host: "h0"}
			if w == 0 {
				continue
			}
			waiting[w] = true
			delete(member, w)
		case pick < 9:
			w := some(rnd, member)
			e = Lost{Worker: w, Reason: "gone"}
			if w == 0 {
				continue
			}
			delete(member, w)
		default:
			w := some(rnd, member)
			if w == 0 {
				continue
			}
			e = Leave{Worker: w}
			switch rnd.Intn(5) {
			case 0:
				e = Drain{Worker: w, Reason: "asked to"}
				delete(member, w)
			case 1:
				e = Done{Worker: w}
			case 2:
				then = Finished{Rank: rnd.Intn(size)}
				fallthrough
			default:
				delete(member, w)
			}
		}
		for _, a := range append(m.Step(e), m.Step(then)...) {
			switch a := a.(type) {
			case Refuse:
				if !waiting[a.Worker] {
					return fmt.Errorf("%+v refuses w%d, which does not wait", e, a.Worker)
				}
				delete(waiting, a.Worker)
			case Open:
				if err := opened(m, a, epoch, policy, waiting); err != nil {
					return fmt.Errorf("after %+v: %w", e, err)
				}
				epoch = a.Epoch
				for _, p := range a.Members {
					delete(waiting, p.Worker)
					member[p.Worker] = true
				}
			}
		}
		if m.Waiting() != len(waiting) {
			return fmt.Errorf("after %+v the machine has %d waiting, the history %d", e, m.Waiting(), len(waiting))
		}
	}
	return nil
}

// some picks a key in a repeatable way; 0 when there is none.
func some(rnd *rand.Rand, set map[Worker]bool) Worker {
	best, score := Worker(0), -1
	salt := rnd.Intn(1 << 20)
	for w := range set {
		if s := (int(w)*7919 + salt) % 10007; s > score || s == score && w < best {
			best, score = w, s
		}
	}
	return best
}

func opened(m *Machine, a Open, before uint64, policy Policy, waiting map[Worker]bool) error {
	if a.Epoch != before+1 {
		return fmt.Errorf("epoch %d follows %d", a.Epoch, before)
	}
	if policy == Stop && len(a.Members) != m.cfg.Size {
		return fmt.Errorf("%d members, want %d", len(a.Members), m.cfg.Size)
	}
	if len(a.Members) > max(m.cfg.Max, m.cfg.Size) {
		return fmt.Errorf("%d members, at most %d", len(a.Members), m.cfg.Max)
	}
	seen := map[Worker]bool{}
	for i, p := range a.Members {
		if p.Rank != i || seen[p.Worker] || !waiting[p.Worker] {
			return fmt.Errorf("place %d is %+v", i, p)
		}
		seen[p.Worker] = true
	}
	return nil
}
