package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func mustMix(t testing.TB, weights ...string) *Mix {
	t.Helper()
	m, err := NewMix(weights)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMix: members have what their weights say: exactly in each window, and never more
// than about a row beside it in between.
func TestMix(t *testing.T) {
	for _, c := range []struct {
		weights []string
		window  string // members' rows in the first window, or ""
	}{
		{[]string{"0.7", "0.2", "0.1"}, "[700 200 100]"},
		{[]string{"7", "3"}, "[700 300]"},
		{[]string{"1"}, "[1000]"},
		{[]string{"3e-1", "0", "0.7"}, "[300 0 700]"},
		{[]string{"0.999", "0.001"}, "[999 1]"},
		{[]string{"1", "1", "1"}, "[333 333 334]"},
		{[]string{"3.14159265358979", "2.71828182845905", "1.4142135623731"}, ""},
		{[]string{"0.12345678901234", "1000000"}, "error"},
	} {
		m, err := NewMix(c.weights)
		if c.window == "error" {
			if err == nil || !strings.Contains(err.Error(), "less than one in 1000") {
				t.Errorf("%v: %v", c.weights, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		k := m.Members()
		before, counts := make([]int64, k), make([]int64, k)
		whole := float64(m.sums[k])
		for n := int64(0); n <= 7*MixWindow; n++ {
			m.Before(n, counts)
			var sum int64
			for i := range k {
				sum += counts[i]
				share := float64(m.sums[i+1]-m.sums[i]) / whole
				if off := math.Abs(float64(counts[i]) - float64(n)*share); off > 2.5 || n%MixWindow == 0 && off >= 1 {
					t.Fatalf("%v: of %d rows %v", c.weights, n, counts)
				}
				if d := counts[i] - before[i]; d < 0 || d > 1 {
					t.Fatalf("%v: of %d rows %v, of one less %v", c.weights, n, counts, before)
				}
			}
			if sum != n {
				t.Fatalf("%v: %d rows are %v", c.weights, n, counts)
			}
			copy(before, counts)
			if n == MixWindow && c.window != "" && fmt.Sprint(counts) != c.window {
				t.Errorf("%v: a window has %v", c.weights, counts)
			}
		}
	}
	m := mustMix(t, "1", "1", "1")
	far := make([]int64, 3)
	m.Before(3_000_000_000_000_000_000, far)
	if fmt.Sprint(far) != "[1000000000000000000 1000000000000000000 1000000000000000000]" {
		t.Error(far)
	}
	if n := m.Longest(1, 500); n != 1500 {
		t.Errorf("500 rows of a third last %d", n)
	}
	for _, bad := range [][]string{nil, {"-1"}, {"nan"}, {"inf"}, {"1e99999999"}, {"0", "0"}, {"1", "x"}, {"0x1p3000000"}, {"1/3"}} {
		if _, err := NewMix(bad); err == nil {
			t.Errorf("%v make a mixture", bad)
		}
	}
}

// TestMixGolden freezes the order of members, as TestGolden does that of rows.
func TestMixGolden(t *testing.T) {
	h := fnv.New64a()
	for _, weights := range [][]string{{"0.7", "0.2", "0.1"}, {"1", "1", "1"}, {"5", "0", "2.5", "0.03125"}} {
		m := mustMix(t, weights...)
		counts := make([]int64, m.Members())
		for n := range int64(2500) {
			m.Before(n, counts)
			fmt.Fprintln(h, counts)
		}
		m.Before(123_456_789_012_345, counts)
		fmt.Fprintln(h, counts)
	}
	fmt.Fprintln(h, MemberSeed(1, 0), MemberSeed(1, 1), MixKey(1, 2, 3))
	if got := h.Sum64(); got != goldenMix {
		t.Errorf("the order of mixtures is %#x", got)
	}
}

// TestCut: each row of a step goes to one rank, ranks differ by at most one row, of the
// whole and of each member.
func TestCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		size, members := 1+rng.IntN(9), 1+rng.IntN(4)
		totals := make([]int64, size)
		var before int64
		for range members {
			n, at := rng.Int64N(40), int64(0)
			for rank := range size {
				begin, end := Cut(before, n, rank, size)
				if begin != at || end-begin > n/int64(size)+1 || end-begin < n/int64(size) {
					t.Fatalf("rank %d of %d takes %d to %d of %d after %d", rank, size, begin, end, n, before)
				}
				at = end
				totals[rank] += end - begin
			}
			if at != n {
				t.Fatalf("%d of %d rows", at, n)
			}
			before += n
		}
		for rank, n := range totals {
			least := before / int64(size)
			if n != below(before, rank+1, size)-below(before, rank, size) || n-least > 1 || n < least {
				t.Fatalf("%d rows of %d are %v", before, size, totals)
			}
		}
	}
}

func TestMixState(t *testing.T) {
	s := MixState{Version: Version, Seed: math.MaxUint64, Rows: 1 << 40, Epoch: 1<<23 - 2, Position: 1 << 40}
	s.Began = 1 << 62
	s.Members = []Member{
		{strings.Repeat("n", 20), "0.1234567890123456", strings.Repeat("0f", 16), 1 << 40, 1 << 40, MaxLanes, MaxWindow, 1 << 30},
		{"b", "1", strings.Repeat("0f", 16), 3, 4, 5, 6, 0},
	}
	text := s.JSON()
	one, err := json.Marshal(s.Members[0])
	if err != nil || len(one) >= 200 || len(text) >= 600 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	back, err := ParseMixState(text)
	if err != nil || fmt.Sprint(*back) != fmt.Sprint(s) {
		t.Errorf("%+v, %v", back, err)
	}
	for _, bad := range []string{
		"", "{}", `{"mix":[{}],"v":2}`, strings.Replace(string(text), "0f", "zz", 1), strings.Replace(string(text), `"rows":`, `"rows":-`, 1),
		strings.Replace(string(text), `"lanes":1024`, `"lanes":0`, 1), strings.Replace(string(text), `"began":4`, `"began":9`, 1),
		strings.Replace(string(text), `"epoch":8388606`, `"epoch":18446744073709551615`, 1),
	} {
		if _, err := ParseMixState([]byte(bad)); err == nil || !strings.Contains(err.Error(), "read state of a mixture") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func BenchmarkMix(b *testing.B) {
	m := mustMix(b, "0.7", "0.2", "0.1")
	counts := make([]int64, 3)
	for i := 0; b.Loop(); i += 256 {
		m.Before(int64(i), counts)
	}
}
