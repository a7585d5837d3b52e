package jobtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora"
	"hora/internal/jobtest"
)

// largeBytes does not fit 31 bits, nor is it a whole number of anything.
const largeBytes = 1<<31 + 4099

// motif is what rank r's bytes repeat. Its length divides no piece of any algorithm.
func motif(r int) []byte {
	m := make([]byte, 8191)
	for i := range m {
		m[i] = byte(i*(2*r+3) + i>>8 + r)
	}
	return m
}

// paint fills b with the motif from its at-th byte on.
func paint(b, m []byte, at int) {
	n := copy(b, m[at%len(m):])
	for n < len(b) && n < len(m) {
		n += copy(b[n:], m)
	}
	for n < len(b) {
		n += copy(b[n:], b[:n/len(m)*len(m)][(n%len(m)):])
	}
}

// strays is the first byte of b that differs from the motif from its at-th byte on.
func strays(b, m []byte, at int) error {
	for i := 0; i < len(b); {
		want := m[(at+i)%len(m):]
		n := min(len(want), len(b)-i)
		if !bytes.Equal(b[i:i+n], want[:n]) {
			for k := range n {
				if b[i+k] != want[k] {
					return fmt.Errorf("byte %d of %d is %d, want %d", i+k, len(b), b[i+k], want[k])
				}
			}
		}
		i += n
	}
	return nil
}

func freeMemory() (bytes int) {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			kib, _ := strconv.Atoi(f[1])
			return kib << 10
		}
	}
	return 0
}

// TestMoreThanTwoGiB moves tensors of more than 2^31 bytes and elements between two
// ranks, over both links.
func TestMoreThanTwoGiB(t *testing.T) {
	if os.Getenv("HORA_SOAK") != "1" {
		t.Skip("takes long; HORA_SOAK=1 runs it (make soak)")
	}
	if free := freeMemory(); free < 6*largeBytes {
		t.Skipf("needs memory: 13 GB, %d MB are free", free>>20)
	}
	for _, links := range []string{"shm", "tcp"} {
		for name, f := range map[string]func(ctx context.Context, g *hora.Group) error{
			"allreduce": largeSum, "allreduce in a buffer": largeSumShared, "broadcast": largeBroadcast,
			"allgather": largeAllgather, "reducescatter": largeScatter, "alltoall": largeAlltoall,
		} {
			t.Run(links+" "+name, func(t *testing.T) {
				s := hora.NewSecret()
				addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
				jobtest.Ranks(t, 2, func(rank int) error {
					ctx := context.Background()
					w, err := hora.Join(ctx, hora.Config{
						Rank: rank, Size: 2, Addr: addr, Serve: true, Secret: s, Links: links,
						PeerTimeout: 2 * time.Minute,
					})
					if err != nil {
						return err
					}
					err = f(ctx, w.Group())
					return errors.Join(err, w.Leave(ctx))
				})
			})
			debug.FreeOSMemory()
		}
	}
}

// total is the sum of both ranks' motifs.
func total() []byte {
	m, other := motif(0), motif(1)
	for i := range m {
		m[i] += other[i]
	}
	return m
}

func largeSum(ctx context.Context, g *hora.Group) error {
	return sumIn(ctx, g, make([]byte, largeBytes))
}

func largeSumShared(ctx context.Context, g *hora.Group) error {
	x, err := g.Buffer(ctx, largeBytes)
	if err != nil {
		return err
	}
	return sumIn(ctx, g, x)
}

func sumIn(ctx context.Context, g *hora.Group, x []byte) error {
	paint(x, motif(g.Rank()), 0)
	if err := hora.Allreduce(ctx, g, x, hora.Sum); err != nil {
		return err
	}
	return strays(x, total(), 0)
}

func largeBroadcast(ctx context.Context, g *hora.Group) error {
	x := make([]byte, largeBytes)
	if g.Rank() == 1 {
		paint(x, motif(1), 0)
	}
	if err := hora.Broadcast(ctx, g, x, 1); err != nil {
		return err
	}
	return strays(x, motif(1), 0)
}

func largeAllgather(ctx context.Context, g *hora.Group) error {
	x := make([]byte, largeBytes/2+g.Rank())
	paint(x, motif(g.Rank()), 0)
	all, err := hora.Allgather(ctx, g, x)
	if err != nil {
		return err
	}
	first := largeBytes / 2
	return errors.Join(strays(all[:first], motif(0), 0), strays(all[first:], motif(1), 0))
}

func largeScatter(ctx context.Context, g *hora.Group) error {
	x := make([]byte, largeBytes)
	paint(x, motif(g.Rank()), 0)
	mine, err := hora.ReduceScatter(ctx, g, x, hora.Sum)
	if err != nil {
		return err
	}
	return strays(mine, total(), g.Rank()*(largeBytes+1)/2)
}

func largeAlltoall(ctx context.Context, g *hora.Group) error {
	x := make([]byte, largeBytes)
	paint(x, motif(g.Rank()), 0)
	const cut = 1<<30 + 77
	all, counts, err := hora.Alltoall(ctx, g, x, []int{cut, largeBytes - cut})
	if err != nil {
		return err
	}
	from := g.Rank() * cut
	return errors.Join(strays(all[:counts[0]], motif(0), from), strays(all[counts[0]:], motif(1), from))
}
