package dataset

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"hora/dataset/plan"
	"hora/internal/jobtest"
	"hora/storage"
)

// TestMain is a rank of a full shuffle where the environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("HORA_TEST_FULL") != "" {
		if err := fullRank(); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fullConfig is what all ranks of a test read; folder: of what they share.
func fullConfig(data, folder string, rank, ranks int) Config {
	return Config{
		Source: []string{data}, Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Shuffle: Full, Seed: 5, Threads: 2,
		LocalRank: rank, LocalSize: ranks, Job: "test",
		Lookup: func(name string) string { return map[string]string{"TMPDIR": folder}[name] },
	}
}

// stuckStore lets a few reads by and then none.
type stuckStore struct {
	storage.Store
	left *atomic.Int64
}

func (s stuckStore) ReadAt(ctx context.Context, o storage.Object, p []byte, at int64) error {
	if n := s.left.Add(-1); n < 0 {
		if n == -1 {
			fmt.Println("stuck")
		}
		<-make(chan bool) // until it is killed: the goroutines that decode do not end for less
	}
	return s.Store.ReadAt(ctx, o, p, at)
}

// fullRank reads the epochs that it is asked for, and says of each what it has read.
func fullRank() error {
	number := func(name string) int { n, _ := strconv.Atoi(os.Getenv(name)); return n }
	rank, ranks := number("HORA_TEST_RANK"), number("HORA_TEST_RANKS")
	if ms := number("HORA_TEST_PATIENCE_MS"); ms > 0 {
		patience = time.Duration(ms) * time.Millisecond
	}
	s, err := Open(context.Background(), fullConfig(os.Getenv("HORA_TEST_FULL"), os.Getenv("HORA_TEST_FOLDER"), rank, ranks))
	if err != nil {
		return err
	}
	if n := number("HORA_TEST_STUCK"); n > 0 {
		left := new(atomic.Int64)
		left.Store(int64(n))
		for i := range s.files {
			s.files[i].store = stuckStore{s.files[i].store, left}
		}
	}
	s.keep().leave() // as long as the Set is open, its rank is there
	fmt.Println("here")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		epoch, err := strconv.ParseUint(in.Text(), 10, 64)
		if err != nil {
			break
		}
		sum, read, err := fullEpoch(s, epoch, rank, ranks)
		if err != nil {
			return err
		}
		fmt.Printf("epoch %s %d %s\n", sum, read, s.Told())
	}
	s.Close()
	return nil
}

// fullEpoch reads a rank's part of an epoch: a sum of its rows in their order, and how many blocks it decoded.
func fullEpoch(s *Set, epoch uint64, rank, ranks int) (sum string, read int64, err error) {
	r, err := s.Read(Walk{epoch, 0, rank, ranks, int64(10 * ranks), plan.Short, nil})
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	h := sha256.New()
	for {
		b, err := r.Next(50 * time.Millisecond)
		switch {
		case errors.Is(err, ErrNotYet):
			continue
		case errors.Is(err, io.EOF):
			return fmt.Sprintf("%x", h.Sum(nil)[:8]), r.Times().Read, nil
		case err != nil:
			return "", 0, err
		}
		for _, f := range r.Layout() {
			for row := range b.Rows {
				if f.Text >= 0 {
					fmt.Fprintf(h, "%q", b.Item(&f, row))
					continue
				}
				h.Write(b.Memory()[f.At+row*f.Width : f.At+(row+1)*f.Width])
				if f.Mask {
					h.Write(b.Memory()[f.MaskAt+row*max(1, f.Count) : f.MaskAt+(row+1)*max(1, f.Count)])
				}
			}
		}
		b.Release()
	}
}

// fullJob is ranks of one host, started and joined.
type fullJob struct {
	t     *testing.T
	ranks []*jobtest.Process
}

func startFull(t *testing.T, data, folder string, of, ranks int, env ...[]string) *fullJob {
	t.Helper()
	j := &fullJob{t: t}
	for rank := range ranks {
		all := []string{
			"HORA_TEST_FULL=" + data, "HORA_TEST_FOLDER=" + folder, fmt.Sprint("HORA_TEST_RANK=", rank), fmt.Sprint("HORA_TEST_RANKS=", of),
		}
		if rank < len(env) {
			all = append(all, env[rank]...)
		}
		j.ranks = append(j.ranks, jobtest.Start(t, jobtest.Self(t, all...)))
	}
	for rank := range j.ranks {
		j.says(rank, "here")
	}
	return j
}

func (j *fullJob) tell(line string) {
	for _, p := range j.ranks {
		p.Tell(line)
	}
}

func (j *fullJob) says(rank int, begins string) string {
	j.t.Helper()
	line, ok := j.ranks[rank].Next(30 * time.Second)
	if !ok || !strings.HasPrefix(line, begins) {
		j.t.Fatalf("rank %d says %q, want %q", rank, line, begins)
	}
	return line
}

// epoch checks a rank's answer and returns how many blocks it decoded and what it was told.
func (j *fullJob) epoch(rank int, want string) (read int, told string) {
	j.t.Helper()
	parts := strings.SplitN(j.says(rank, "epoch "), " ", 4)
	if parts[1] != want {
		j.t.Errorf("rank %d has the rows %s, and alone %s", rank, parts[1], want)
	}
	read, err := strconv.Atoi(parts[2])
	if err != nil {
		j.t.Fatal(err)
	}
	return read, parts[3]
}

// end lets the ranks close and waits for their ends.
func (j *fullJob) end() {
	j.tell("end")
	for _, p := range j.ranks {
		<-p.Ended
	}
}

// fullAlone are the sums of the ranks' rows where each decodes for itself.
func fullAlone(t *testing.T, data string, epoch uint64, ranks int) []string {
	t.Helper()
	var sums []string
	for rank := range ranks {
		cfg := fullConfig(data, "", rank, 0)
		s := mustOpen(t, cfg)
		sum, read, err := fullEpoch(s, epoch, rank, ranks)
		if err != nil || read != int64(s.Blocks()) {
			t.Fatalf("%d blocks of %d: %v", read, s.Blocks(), err)
		}
		sums = append(sums, sum)
	}
	return sums
}

func spillsIn(t *testing.T, folder string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFullDecodesOnce: the ranks of a host decode each row group once, all of them together and for all epochs; the
// rows are those that each finds alone, and nothing is in the folder even while they run.
func TestFullDecodesOnce(t *testing.T) {
	data := t.TempDir()
	table(t, data, 50, 1230, 700, 90)
	for _, ranks := range []int{1, 2, 3} {
		folder := t.TempDir()
		blocks := 0
		j := startFull(t, data, folder, ranks, ranks)
		for epoch := range uint64(3) {
			alone := fullAlone(t, data, epoch, ranks)
			j.tell(fmt.Sprint(epoch))
			for rank := range ranks {
				read, told := j.epoch(rank, alone[rank])
				if blocks += read; told != "" {
					t.Error(told)
				}
			}
			if left := spillsIn(t, folder); len(left) > 0 {
				t.Errorf("%v are there while the ranks run", left)
			}
		}
		const groups = 25 + 14 + 2
		t.Logf("%d ranks opened %d of %d row groups: %.2f", ranks, blocks, groups, float64(blocks)/groups)
		if blocks != groups {
			t.Errorf("%d ranks opened %d row groups of %d", ranks, blocks, groups)
		}
		j.end()
	}
}

// TestFullWithoutARank: one rank is killed in the middle of decoding, with blocks that it has claimed; the others go on
// with all rows, and nothing is left. The same of one that is stopped.
func TestFullWithoutARank(t *testing.T) {
	data := t.TempDir()
	table(t, data, 50, 1230, 700)
	alone := fullAlone(t, data, 0, 3)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		folder := t.TempDir()
		patient := []string{"HORA_TEST_PATIENCE_MS=300"}
		if signal == syscall.SIGKILL {
			patient = nil
		}
		j := startFull(t, data, folder, 3, 3, patient, []string{"HORA_TEST_STUCK=3"}, patient)
		j.ranks[1].Tell("0")
		j.says(1, "stuck")
		for _, rank := range []int{0, 2} {
			j.ranks[rank].Tell("0")
		}
		if err := j.ranks[1].Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		read := 0
		for _, rank := range []int{0, 2} {
			n, told := j.epoch(rank, alone[rank])
			if read += n; told != "" {
				t.Error(told)
			}
		}
		const groups = 25 + 14
		most := groups
		if signal == syscall.SIGSTOP { // two that are tired of waiting may open the same ones
			most = 2 * groups
		}
		if read > most || read < groups-3 {
			t.Errorf("%v: two ranks opened %d row groups of %d; the lost one opened at most 3", signal, read, groups)
		}
		if left := spillsIn(t, folder); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
}

// TestFullLeavesNothing: where a rank never comes, the last one that closes takes the file away; what ranks leave that
// are killed is taken away when somebody opens there next, be it of these data or of others.
func TestFullLeavesNothing(t *testing.T) {
	data, folder := t.TempDir(), t.TempDir()
	table(t, data, 50, 500)
	alone := fullAlone(t, data, 0, 3)
	run := func() *fullJob {
		j := startFull(t, data, folder, 3, 2)
		j.tell("0")
		read := 0
		for rank := range 2 {
			n, _ := j.epoch(rank, alone[rank])
			read += n
		}
		if left := spillsIn(t, folder); len(left) != 1 || read != 10 {
			t.Fatalf("%v are there, and %d row groups were opened", left, read)
		}
		return j
	}
	run().end()
	if left := spillsIn(t, folder); len(left) > 0 {
		t.Errorf("%v is left by ranks that have closed", left)
	}
	for range 2 {
		j := run() // the second time in the place of one that was killed
		for _, p := range j.ranks {
			_ = p.Process.Kill()
			<-p.Ended
		}
	}
	other := t.TempDir()
	table(t, other, 50, 100)
	startFull(t, other, folder, 2, 2)
	if left := spillsIn(t, folder); len(left) > 0 {
		t.Errorf("%v is left by ranks that were killed", left)
	}
}

// TestTwoRanksLeaveAtOnce: of two whose third never came the second takes the file away, though the first has not
// closed its own yet.
func TestTwoRanksLeaveAtOnce(t *testing.T) {
	folder := t.TempDir()
	var ranks [2]*spill
	for r := range ranks {
		p := spillPlace{folder: folder, key: "key", blocks: 2, rank: r, ranks: 3, need: 1 << 20}
		ranks[r] = mustSpill(t, p)
	}
	ranks[0].resign()
	if left := spillsIn(t, folder); len(left) != 1 {
		t.Fatalf("one of three is there, and the folder has %v", left)
	}
	ranks[1].resign()
	if left := spillsIn(t, folder); len(left) > 0 {
		t.Errorf("%v is left by ranks that have gone", left)
	}
}

func mustSpill(t *testing.T, p spillPlace) *spill {
	t.Helper()
	s, err := openSpill(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// claims says whether a spill's rank can have a block.
func (s *spill) claims(t *testing.T, block int) bool {
	t.Helper()
	claimed, err := s.claim(block)
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

// bytesOf answers how many bytes a spill has of a block.
func (s *spill) bytesOf(t *testing.T, block int) int {
	t.Helper()
	if _, err := s.look(); err != nil {
		t.Fatal(err)
	}
	region, err := s.find(block)
	if err != nil {
		t.Fatal(err)
	}
	return len(region)
}

// turn makes a bit of a spill another.
func (s *spill) turn(t *testing.T, at int64) {
	t.Helper()
	var one [1]byte
	if _, err := s.file.ReadAt(one[:], at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 4
	if _, err := s.file.WriteAt(one[:], at); err != nil {
		t.Fatal(err)
	}
}

// TestSpillIsWholeOrNothing: a block is one rank's, until it is there; one of which a bit is another, or that is cut,
// is not taken.
func TestSpillIsWholeOrNothing(t *testing.T) {
	place := spillPlace{folder: t.TempDir(), key: "k", blocks: 5, ranks: 3}
	a := mustSpill(t, place)
	place.rank = 1
	b := mustSpill(t, place)
	if !a.claims(t, 2) || b.claims(t, 2) {
		t.Fatal("two ranks have one block")
	}
	if err := a.publish(2, [][]byte{[]byte("one"), {}, make([]byte, 100_000)}); err != nil {
		t.Fatal(err)
	}
	a.release(2)
	if b.claims(t, 2) {
		t.Fatal("a block that is there is decoded again")
	}
	if n := b.bytesOf(t, 2); n != 64+100_000 {
		t.Fatalf("a block of %d bytes", n)
	}
	at, _, _ := b.entry(2)
	const entry = 2 * entryBytes
	place.rank = 2
	for _, bad := range []int64{at.begin + 1, at.begin + 40, at.end - 1, entry, entry + 9, entry + 17} {
		c := mustSpill(t, place)
		if a.turn(t, bad); c.bytesOf(t, 2) != 0 {
			t.Errorf("with another byte %d it is taken", bad)
		}
		if !c.claims(t, 2) {
			t.Errorf("with another byte %d nobody decodes it again", bad)
		}
		if a.turn(t, bad); b.bytesOf(t, 2) == 0 {
			t.Errorf("byte %d is right again", bad)
		}
		c.close()
	}
	if err := a.file.Truncate(at.end - 1); err != nil {
		t.Fatal(err)
	}
	if b.bytesOf(t, 2) != 0 {
		t.Error("a block that is cut is taken")
	}
}

// TestSpillHasRoomForEach: goroutines of a rank and of another one put blocks to places of their own.
func TestSpillHasRoomForEach(t *testing.T) {
	place := spillPlace{folder: t.TempDir(), key: "k", blocks: 2, ranks: 3}
	a := mustSpill(t, place)
	place.rank = 1
	b := mustSpill(t, place)
	var all sync.WaitGroup
	for range 8 {
		for n, s := range []*spill{a, b} {
			all.Go(func() {
				for range 50 {
					if err := s.publish(n, [][]byte{make([]byte, 1000+n)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	info, err := a.file.Stat()
	if err != nil || info.Size() < 8*50*(1000+1001) {
		t.Errorf("800 blocks of 1,000 bytes lie in %d bytes: %v", info.Size(), err)
	}
}

// TestSpillIsOfOneUser: a file that others may write to is none.
func TestSpillIsOfOneUser(t *testing.T) {
	place := spillPlace{folder: t.TempDir(), key: "open", blocks: 1, ranks: 2}
	name := filepath.Join(place.folder, spillPrefix()+"open")
	if err := errors.Join(os.WriteFile(name, nil, 0o666), os.Chmod(name, 0o666)); err != nil {
		t.Fatal(err)
	}
	if _, err := openSpill(place); err == nil || !strings.Contains(err.Error(), "is not this user's alone") {
		t.Error(err)
	}
}

// TestFullOfADamagedSpill: a rank takes nothing of it that is not what was put there, and decodes that itself.
func TestFullOfADamagedSpill(t *testing.T) {
	data, folder := t.TempDir(), t.TempDir()
	table(t, data, 50, 500)
	alone := fullAlone(t, data, 0, 2)
	for rank, want := range []int64{10, 5} {
		s := mustOpen(t, fullConfig(data, folder, rank, 3))
		sum, read, err := fullEpoch(s, 0, rank, 2)
		if err != nil || sum != alone[rank] || read != want {
			t.Errorf("rank %d: rows %s, alone %s, %d row groups opened: %v", rank, sum, alone[rank], read, err)
		}
		file := s.kept.spill.file
		for block := 0; rank == 0 && block < 10; block += 2 {
			at, _, ok := s.kept.spill.entry(block)
			if _, err := file.WriteAt([]byte{255}, at.end-1); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
}

// TestFullWaitsOnce: a rank that has claimed everything and does not go on is waited for once, and not for each block.
func TestFullWaitsOnce(t *testing.T) {
	data, folder := t.TempDir(), t.TempDir()
	table(t, data, 50, 500)
	alone := fullAlone(t, data, 0, 2)
	before := patience
	patience = 2 * time.Second
	defer func() { patience = before }()
	s := mustOpen(t, fullConfig(data, folder, 0, 2))
	other := mustSpill(t, spillPlace{folder: folder, key: s.spillKey(), blocks: len(s.blocks), rank: 1, ranks: 2})
	for block := range s.blocks {
		if !other.claims(t, block) {
			t.Fatal(block)
		}
	}
	begun := time.Now()
	sum, read, err := fullEpoch(s, 0, 0, 2)
	if err != nil || sum != alone[0] || read != 10 {
		t.Errorf("rows %s, alone %s, %d row groups opened: %v", sum, alone[0], read, err)
	}
	if took := time.Since(begun); took < patience || took > 3*patience {
		t.Errorf("a rank that stands still held up another one for %v", took)
	}
}

// TestFullWithoutRoom: where the rows cannot be shared a sentence says so and each rank has them all the same.
func TestFullWithoutRoom(t *testing.T) {
	data, folder := t.TempDir(), t.TempDir()
	table(t, data, 50, 500)
	for name, says := range map[string]string{folder + "/no/where": "not a directory", folder: "are free and"} {
		cfg := fullConfig(data, name, 0, 2)
		s := mustOpen(t, cfg)
		if name == folder {
			k := s.keep()
			k.leave()
			k.spill.leave()
			place := k.spill.spillPlace
			place.need = 1 << 60
			_, err := openSpill(place)
			k.refuse(err)
		} else if err := os.WriteFile(folder+"/no", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		sum, read, err := fullEpoch(s, 0, 0, 1)
		if err != nil || read != 10 || sum != fullAlone(t, data, 0, 1)[0] {
			t.Errorf("%d row groups: %v", read, err)
		}
		if told := s.Told(); !strings.Contains(told, says) || !strings.Contains(told, "each of them decodes them for itself") {
			t.Errorf("%q, want %q", told, says)
		}
		if name != folder {
			_ = os.Remove(folder + "/no")
		}
	}
	if left := spillsIn(t, folder); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestFullReadersShareASet: two readers of one Set at a time find each block once, and one that is closed early leaves
// its blocks to the other.
func TestFullReadersShareASet(t *testing.T) {
	data := t.TempDir()
	table(t, data, 50, 3000)
	alone := fullAlone(t, data, 0, 2)
	s := mustOpen(t, fullConfig(data, t.TempDir(), 0, 2))
	early := mustRead(t, s, Walk{1, 0, 0, 1, 10, plan.Short, nil})
	early.Close()
	var both sync.WaitGroup
	var read atomic.Int64
	for rank := range 2 {
		both.Go(func() {
			sum, n, err := fullEpoch(s, 0, rank, 2)
			if read.Add(n); err != nil || sum != alone[rank] {
				t.Errorf("reader %d: rows %s, alone %s: %v", rank, sum, alone[rank], err)
			}
		})
	}
	both.Wait()
	if n := read.Load(); n > 60 {
		t.Errorf("%d row groups of 60 were opened", n)
	}
}
