package device

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hora/tensor"
)

// story is a Queue that writes down what it is asked and copies between byte arrays:
// addresses below 1000 are the device's, others the host's.
type story struct {
	memory map[Ptr]byte
	lines  []string
	fail   string
}

func (s *story) say(format string, a ...any) error {
	line := fmt.Sprintf(format, a...)
	s.lines = append(s.lines, line)
	if s.fail != "" && strings.HasPrefix(line, s.fail) {
		return fmt.Errorf("%s: no", line)
	}
	return nil
}

func (s *story) Copy(to, from Ptr, n int, stream Stream) error {
	for i := range n {
		s.memory[to+Ptr(i)] = s.memory[from+Ptr(i)]
	}
	return s.say("copy %d %d<-%d %d", stream, to, from, n)
}
func (s *story) Record(e Event, stream Stream) error { return s.say("record %d on %d", e, stream) }
func (s *story) Await(stream Stream, e Event) error  { return s.say("%d awaits %d", stream, e) }
func (s *story) Ended(e Event) error                 { return s.say("ended %d", e) }

func staging(s *story, slots, bytes int) *Staging {
	st := &Staging{Queue: s, Down: 1, Up: 2, Bytes: bytes}
	for i := range slots {
		st.Slots = append(st.Slots, Slot{
			In: Ptr(1000 + 100*i), Out: Ptr(2000 + 100*i), Down: Event(10 + i),
			Up: Event(20 + i),
		})
	}
	return st
}

// TestOverlap: the next chunk is asked for before the present one is worked on, and a
// slot is not overwritten before it has gone up.
func TestOverlap(t *testing.T) {
	s := &story{memory: map[Ptr]byte{}}
	st := staging(s, 2, 4)
	err := st.Run(&Side{100, []int{10}}, &Side{200, []int{10}}, 1, 4, 3, 7, 8,
		func(t *Turn) error { return s.say("work %d", t.InCounts[0]) })
	if err != nil {
		t.Fatal(err)
	}
	want := `1 awaits 7
2 awaits 7
1 awaits 20
copy 1 1000<-100 4
record 10 on 1
1 awaits 21
copy 1 1100<-104 4
record 11 on 1
ended 10
work 4
copy 2 200<-2000 4
record 20 on 2
1 awaits 20
copy 1 1000<-108 2
record 10 on 1
ended 11
work 4
copy 2 204<-2100 4
record 21 on 2
ended 10
work 2
copy 2 208<-2000 2
record 20 on 2
record 8 on 2`
	if got := strings.Join(s.lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestParts: parts of different lengths, on both sides, every chunk size.
func TestParts(t *testing.T) {
	in, out := []int{5, 0, 3}, []int{2, 6, 1}
	for chunk := 1; chunk <= 7; chunk++ {
		s := &story{memory: map[Ptr]byte{}}
		for i := range 8 {
			s.memory[Ptr(100+i)] = byte(i + 1)
		}
		st := staging(s, 3, 3*chunk)
		var seen [3][]byte
		a, b := &Side{100, in}, &Side{200, out}
		given := 0
		err := st.Run(a, b, 1, chunk, st.Turns(a, b, chunk), 7, 8, func(t *Turn) error {
			at := t.In
			for r, n := range t.InCounts {
				for range n {
					seen[r] = append(seen[r], s.memory[at])
					at++
				}
			}
			at = t.Out
			for r, n := range t.OutCounts {
				for i := range n {
					s.memory[at] = byte(10*r + t.Index*chunk + i + 50)
					at++
					given++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(seen[0], []byte{1, 2, 3, 4, 5}) || seen[1] != nil || !slices.Equal(seen[2], []byte{6, 7, 8}) {
			t.Errorf("chunk %d: the host saw %v", chunk, seen)
		}
		var got []byte
		for i := range 9 {
			got = append(got, s.memory[Ptr(200+i)])
		}
		if want := []byte{50, 51, 60, 61, 62, 63, 64, 65, 70}; !slices.Equal(got, want) || given != 9 {
			t.Errorf("chunk %d: the device got %v, want %v", chunk, got, want)
		}
	}
}

func TestFailuresEndTheRun(t *testing.T) {
	for _, fail := range []string{"1 awaits 7", "copy 1", "record 10", "ended", "work", "copy 2", "record 20", "1 awaits 20", "record 8"} {
		s := &story{memory: map[Ptr]byte{}, fail: fail}
		err := staging(s, 2, 4).Run(&Side{100, []int{10}}, &Side{200, []int{10}}, 1, 4, 3, 7, 8,
			func(*Turn) error { return s.say("work") })
		if err == nil || !strings.HasPrefix(s.lines[len(s.lines)-1], fail) {
			t.Errorf("%q fails: %v after %q", fail, err, s.lines)
		}
	}
	if err := staging(&story{}, 2, 4).Run(&Side{100, []int{9, 9}}, &Side{}, 1, 4, 3, 7, 8, nil); err == nil {
		t.Error("parts larger than a slot are taken")
	}
}

func TestNative(t *testing.T) {
	for _, c := range []struct {
		t      tensor.DType
		op     tensor.Op
		factor float64
		want   string
	}{
		{tensor.Float32, tensor.Sum, 1, "{7 1 0 1} true"},
		{tensor.Float32, tensor.Average, 1, "{7 1 4 1} true"},
		{tensor.Float32, tensor.Average, 2, "{7 1 0 0.5} true"},
		{tensor.BFloat16, tensor.Sum, 0.5, "{9 1 0 0.5} true"},
		{tensor.Complex64, tensor.Sum, 1, "{7 2 0 1} true"},
		{tensor.Complex64, tensor.Average, 1, "{7 2 0 0.25} true"},
		{tensor.Complex64, tensor.Product, 1, "{7 2 1 1} false"},
		{tensor.Int32, tensor.Average, 1, "{2 1 4 1} true"},
		{tensor.Int32, tensor.Sum, 2, "{0 0 0 0} false"},
		{tensor.Bool, tensor.Sum, 1, "{1 1 2 1} true"},
		{tensor.Bool, tensor.Product, 1, "{1 1 3 1} true"},
		{tensor.Bool, tensor.And, 1, "{1 1 3 1} true"},
		{tensor.Uint8, tensor.And, 1, "{1 1 3 1} false"},
		{tensor.Int16, tensor.Sum, 1, "{0 0 0 0} false"},
		{tensor.Float8E4M3, tensor.Sum, 1, "{0 0 0 0} false"},
		{tensor.Float64, tensor.Adasum, 1, "{0 0 0 0} false"},
		{tensor.Float64, tensor.Max, 1, "{8 1 2 1} true"},
	} {
		r, ok := Native(c.t, c.op, c.factor, 4)
		if got := fmt.Sprint(r, ok); got != c.want {
			t.Errorf("%s of %s times %g: %s, want %s", c.op, c.t, c.factor, got, c.want)
		}
	}
}
