package tcp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"hora/transport"
)

// bench times recursive doubling over the mesh: one exchange per power of two.
func (s rankSpec) bench(m *Mesh, n *Node) error {
	fmt.Println("running")
	out, in := make([]byte, s.Bytes), make([]byte, s.Bytes)
	seq := uint64(0)
	step := func() error {
		seq++
		m.Begin(transport.Stamp{Seq: seq, Print: 1}, time.Time{})
		for d := 1; d < s.Size; d *= 2 {
			o := s.Rank ^ d
			if err := m.Exchange(o, out, o, in); err != nil {
				return err
			}
		}
		return nil
	}
	for range s.Bench/10 + 1 {
		if err := step(); err != nil {
			return err
		}
	}
	begun := time.Now()
	for range s.Bench {
		if err := step(); err != nil {
			return err
		}
	}
	fmt.Println(time.Since(begun).Nanoseconds() / int64(s.Bench))
	return n.Close()
}

// BenchmarkAllreduce runs 2 and 4 real processes, on two cores if there are two,
// under SCHED_RR where that is allowed. HORA_TCP_BENCH_MESH overrides the tuning.
func BenchmarkAllreduce(b *testing.B) {
	rr := exec.Command("chrt", "-r", "5", "true").Run() == nil
	for _, size := range []int{2, 4} {
		for _, bytes := range []int{4, 4096, 65536, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("ranks=%d/bytes=%d/rr=%v", size, bytes, rr), func(b *testing.B) {
				tuning := os.Getenv("HORA_TCP_BENCH_MESH")
				if tuning == "" {
					text, _ := json.Marshal(map[string]bool{"Oversubscribed": size > onlineCores()})
					tuning = string(text)
				}
				procs := spawn(b, size, func(s *rankSpec) {
					s.Bytes, s.Bench, s.Mesh = bytes, max(1, min(b.N, 3e9/(10_000+bytes))), tuning
				}, func(rank int, cmd *exec.Cmd) {
					args := []string{}
					if rr {
						args = append(args, "chrt", "-r", "5")
					}
					if size <= 2 || os.Getenv("HORA_PIN") != "" {
						args = append(args, "taskset", "-c", strconv.Itoa(rank%2))
					}
					if len(args) > 0 {
						args = append(args, cmd.Path)
						path, err := exec.LookPath(args[0])
						if err != nil {
							b.Skip(err)
						}
						cmd.Path, cmd.Args = path, args
					}
				})
				slowest := 0
				for _, p := range procs {
					ns, err := strconv.Atoi(p.next(b, time.Minute))
					if err != nil {
						b.Fatal(err)
					}
					slowest = max(slowest, ns)
				}
				b.ReportMetric(float64(slowest), "ns/op")
			})
		}
	}
}
