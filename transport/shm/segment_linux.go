package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/transport"
)

// The segment is a board, then one pulse per seat, then one mailbox per ordered
// pair of seats.
const (
	pageBytes  = 4096
	eagerSeats = 16
)

// pulse is one seat's sign of life, and what killed it.
type pulse struct {
	beat  uint64 // grows once a beat
	_     [120]byte
	awake uint32 // 1 while the seat's goroutine for control messages looks at its boxes
	_     [124]byte
	lost  uint32 // 0 alive, 1 being written, 2 lost
	n     uint32
	why   [120]byte
}

// declare says once and for all ranks why a seat is lost.
func (p *pulse) declare(why string) {
	if !atomic.CompareAndSwapUint32(&p.lost, 0, 1) {
		return
	}
	p.n = uint32(copy(p.why[:], why))
	atomic.StoreUint32(&p.lost, 2)
}

func (p *pulse) reason() (why string, lost bool) {
	if atomic.LoadUint32(&p.lost) != 2 {
		return "", false
	}
	return string(p.why[:min(int(p.n), len(p.why))]), true
}

// segment is the mapped memory of one group on one host.
type segment struct {
	mem    []byte
	board  []byte
	pulses []*pulse
	boxes  [][]*mailbox // [from][to]
}

func segmentBytes(seats int, cfg transport.BoardConfig) int {
	n := transport.BoardSize(seats, cfg) + seats*int(unsafe.Sizeof(pulse{}))
	n = (n + pageBytes - 1) &^ (pageBytes - 1)
	return n + seats*seats*mailboxBytes(seats)
}

// mapSegment maps fd and finds the areas in it.
func mapSegment(fd, size, seats int, cfg transport.BoardConfig) (*segment, error) {
	if size != segmentBytes(seats, cfg) {
		return nil, fmt.Errorf("map segment: %d bytes, %d expected; configure all ranks alike", size, segmentBytes(seats, cfg))
	}
	if err := checkMemory(fd, size); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map segment of %d bytes: %w", size, err)
	}
	if seats <= eagerSeats { // with more, most of it is for others to use
		populate(mem[:transport.BoardHotSize(seats, cfg)])
	}
	s := &segment{mem: mem, board: mem[:transport.BoardSize(seats, cfg)]}
	at := len(s.board)
	for range seats {
		s.pulses = append(s.pulses, (*pulse)(unsafe.Pointer(&mem[at])))
		at += int(unsafe.Sizeof(pulse{}))
	}
	at = (at + pageBytes - 1) &^ (pageBytes - 1)
	s.boxes = make([][]*mailbox, seats)
	for from := range seats {
		for range seats {
			s.boxes[from] = append(s.boxes[from], newMailbox(mem[at:at+mailboxBytes(seats)]))
			at += mailboxBytes(seats)
		}
	}
	return s, nil
}

func (s *segment) unmap() error { return unix.Munmap(s.mem) }

// checkMemory refuses a descriptor whose memory could vanish under the mapping: it
// must be a memfd sealed against shrinking, of the right size.
func checkMemory(fd, size int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at shared memory: %w", err)
	}
	if st.Size != int64(size) {
		return fmt.Errorf("look at shared memory: %d bytes, %d expected", st.Size, size)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return errors.New("look at shared memory: it is not sealed against shrinking")
	}
	return nil
}

// newMemory makes size bytes that have no name. The first hot of them are there for
// sure when it returns: memory that lacks is an error here and no SIGBUS or kill
// later.
func newMemory(name string, size, hot int) (fd int, err error) {
	if err := checkLimits(size, hot); err != nil {
		return -1, err
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("make shared memory: %w", err)
	}
	err = unix.Ftruncate(fd, int64(size))
	if err == nil && hot > 0 {
		err = fallocate(fd, int64(hot))
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("make %d bytes of shared memory: %w", size, err)
	}
	return fd, nil
}

func fallocate(fd int, n int64) error {
	for {
		err := unix.Fallocate(fd, 0, 0, n)
		if err != unix.EINTR {
			return err
		}
	}
}

// populate makes and maps the pages of mem now, large ones where the system lets
// shared memory have them: what lacks is an error and no SIGBUS, and the first
// operation does not pay for 256 faults a mebibyte. Before Linux 5.14 pages come when
// they are touched.
func populate(mem []byte) error {
	unix.Madvise(mem, unix.MADV_HUGEPAGE)
	for {
		err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
		switch err {
		case unix.EINTR, unix.EAGAIN:
			continue
		case unix.EINVAL:
			return nil
		}
		return err
	}
}

// checkLimits looks first where exceeding a limit would be punished with a signal
// (file size) or by the kernel's killer (the control group's memory).
func checkLimits(size, hot int) error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && uint64(size) > limit.Cur {
		return fmt.Errorf("make %d bytes of shared memory: the limit of a file's size is %d (ulimit -f)", size, limit.Cur)
	}
	if room, ok := memoryRoom(os.ReadFile); ok && int64(hot) > room {
		return fmt.Errorf("make %d bytes of shared memory: the control group has %d left (memory.max)", hot, room)
	}
	return nil
}

// memoryRoom is what the control groups above this process leave it, less what can
// be reclaimed; ok is false where there is no limit or nothing is known.
func memoryRoom(read func(string) ([]byte, error)) (room int64, ok bool) {
	own, err := read("/proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(own) {
		path, v2 := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::"))
		if !v2 {
			continue
		}
		dir := "/sys/fs/cgroup" + string(path)
		limit, lok := readNumber(read, dir+"/memory.max")
		used, uok := readNumber(read, dir+"/memory.current")
		if !lok || !uok {
			return 0, false
		}
		stat, _ := read(dir + "/memory.stat")
		for line := range bytes.Lines(stat) {
			if n, found := bytes.CutPrefix(line, []byte("inactive_file ")); found {
				v, _ := strconv.ParseInt(string(bytes.TrimSpace(n)), 10, 64)
				used -= v
			}
		}
		return limit - used, true
	}
	return 0, false
}

func readNumber(read func(string) ([]byte, error), path string) (int64, bool) {
	b, err := read(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil // "max" is no number: no limit
}
