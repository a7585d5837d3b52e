package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// spill is a file in which the ranks of a host have decoded blocks together. It begins with an entry for each block,
// and behind them lie the blocks, in the order in which they came. An entry is written after its block, and both have
// checksums: nobody sees half of one. Nothing that stands there is written again. All writing is done with write, and
// not through the mapping: a full disk is an error then, and no signal.
//
// Who does what is said by locks on bytes far behind the content, which the system takes back from a process that ends,
// however it ends: one for each block, held by who decodes it; one for each rank, held as long as it uses the file; and
// the door, held for moments by who changes the file's size, or its name's fate. When all of the host's ranks hold
// theirs the name is taken away, and nothing can be left behind from then on. Else the last one to leave takes it away,
// and where none could, whoever opens a spill in that folder next.
type spill struct {
	spillPlace
	path  string
	file  *os.File // nil: left
	table []byte   // entries as they were when they were read last
	next  []byte   // what they are read to
	maps  map[span][]byte
	bad   map[int]int64 // blocks that are not what was put there, and where they begin

	inside sync.Mutex // held behind the door: locks of one open file do not keep its own goroutines apart
}

// spillPlace says where a spill lies, and whose it is.
type spillPlace struct {
	folder, key string
	blocks      int
	rank, ranks int   // of this host
	need        int64 // bytes that all blocks take, about
}

const (
	entryBytes = 32
	mapBytes   = 64 << 20 // what is mapped at once

	blockLocks = 1 << 40
	rankLocks  = 1 << 41
	doorLock   = 1 << 42
	mostRanks  = 1 << 20 // of a host

	ofdGet, ofdSet = 36, 37 // F_OFD_GETLK, F_OFD_SETLK: locks of an open file, not of a process
)

var (
	spillSums = crc32.MakeTable(crc32.Castagnoli)
	errDoor   = errors.New("another rank holds its lock and does not go on")
)

// openSpill joins the spill of a key, or begins it.
func openSpill(p spillPlace) (*spill, error) {
	if err := os.MkdirAll(p.folder, 0o700); err != nil {
		return nil, err
	}
	s := &spill{
		spillPlace: p, path: filepath.Join(p.folder, spillPrefix()+p.key),
		maps: map[span][]byte{}, bad: map[int]int64{},
	}
	s.table, s.next = make([]byte, entryBytes*p.blocks), make([]byte, entryBytes*p.blocks)
	sweepSpills(p.folder, s.path)
	for range 100 { // others may take the name away meanwhile, and no more often than they are
		var err error
		if s.file, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600); err != nil {
			return nil, bare(err)
		}
		joined, err := s.join()
		if joined && err == nil {
			return s, nil
		}
		_ = s.file.Close() // nothing is in it
		if err != nil {
			return nil, bare(err)
		}
	}
	return nil, errors.New("its name is taken away again and again")
}

// bare is an error without the file's name, which whoever reads of it cannot do anything with.
func bare(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// join takes this rank's lock, unless the file is no longer the one of that name.
func (s *spill) join() (bool, error) {
	if err := s.door(); err != nil {
		return false, err
	}
	defer s.shut()
	var is syscall.Stat_t
	if err := syscall.Fstat(int(s.file.Fd()), &is); err != nil {
		return false, err
	}
	if is.Mode&syscall.S_IFMT != syscall.S_IFREG || int(is.Uid) != os.Geteuid() || is.Mode&0o077 != 0 {
		return false, fmt.Errorf("%s is not this user's alone", filepath.Base(s.path))
	}
	if is.Nlink == 0 {
		return false, nil
	}
	if is.Size > 0 && s.nobody() { // of ranks that were killed
		return false, os.Remove(s.path)
	}
	if is.Size == 0 {
		if err := s.fits(); err != nil {
			_ = os.Remove(s.path) // it is empty
			return false, err
		}
	}
	if taken, err := s.lock(syscall.F_RDLCK, rankLocks+int64(s.rank), 1); !taken {
		return false, errors.Join(err, errDoor)
	}
	if s.everybody() {
		return true, os.Remove(s.path)
	}
	return true, nil
}

// fits reports whether the disk has room for all blocks.
func (s *spill) fits() error {
	var disk syscall.Statfs_t
	if err := syscall.Fstatfs(int(s.file.Fd()), &disk); err != nil {
		return err
	}
	free := int64(disk.Bavail) * int64(disk.Bsize)
	if need := s.need + s.need/4; free < need {
		return fmt.Errorf("%s are free and %s are needed", size(free), size(need))
	}
	return nil
}

// lock tries to lock bytes; F_UNLCK lets them go.
func (s *spill) lock(how int16, from, n int64) (bool, error) {
	err := syscall.FcntlFlock(s.file.Fd(), ofdSet, &syscall.Flock_t{Type: how, Start: from, Len: n})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// unlock lets a byte go. It cannot fail but where locks cannot be taken either.
func (s *spill) unlock(at int64) { _, _ = s.lock(syscall.F_UNLCK, at, 1) }

// door takes the lock that is held for moments; shut gives it back.
func (s *spill) door() (err error) {
	s.inside.Lock()
	defer func() {
		if err != nil {
			s.inside.Unlock()
		}
	}()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		taken, err := s.lock(syscall.F_WRLCK, doorLock, 1)
		switch {
		case err != nil:
			return fmt.Errorf("locks on its files: %w", err)
		case taken:
			return nil
		case time.Now().After(end):
			return errDoor
		}
	}
}

func (s *spill) shut() {
	s.unlock(doorLock)
	s.inside.Unlock()
}

// nobody reports whether no other rank uses the file.
func (s *spill) nobody() bool {
	taken, err := s.lock(syscall.F_WRLCK, rankLocks, int64(s.ranks)+1)
	if taken {
		_, _ = s.lock(syscall.F_UNLCK, rankLocks, int64(s.ranks)+1)
	}
	return taken && err == nil
}

// everybody reports whether all ranks of the host use the file.
func (s *spill) everybody() bool {
	for rank := range s.ranks {
		l := syscall.Flock_t{Type: syscall.F_WRLCK, Start: rankLocks + int64(rank), Len: 1}
		if rank == s.rank {
			continue
		}
		if syscall.FcntlFlock(s.file.Fd(), ofdGet, &l) != nil || l.Type == syscall.F_UNLCK {
			return false
		}
	}
	return true
}

// leave gives this rank's locks back; the last one takes the name away. What is mapped stays.
func (s *spill) leave() {
	if s.file == nil {
		return
	}
	s.resign()
	_ = s.file.Close() // nothing is waited for
	s.file = nil
}

// resign gives this rank's locks back while it has the door: of two that leave at once the second finds itself alone,
// also where the first has not closed its file yet.
func (s *spill) resign() {
	if s.door() != nil {
		return // the next spill in the folder removes it
	}
	s.remove()
	_, _ = s.lock(syscall.F_UNLCK, rankLocks, int64(s.ranks)+1)
	s.shut()
}

// remove takes the name away where nobody else uses the file, behind the door.
func (s *spill) remove() {
	var is syscall.Stat_t
	if syscall.Fstat(int(s.file.Fd()), &is) == nil && is.Nlink > 0 && s.nobody() {
		_ = os.Remove(s.path) // somebody else's
	}
}

// close is the end: nobody looks at a block any more.
func (s *spill) close() {
	s.leave()
	for _, m := range s.maps {
		_ = syscall.Munmap(m) // it is ours and mapped
	}
	s.maps = nil
}

// look reads the entries anew and reports whether there are others.
func (s *spill) look() (changed bool, err error) {
	if err := s.read(s.next, 0); err != nil {
		return false, err
	}
	changed = string(s.next) != string(s.table)
	s.table, s.next = s.next, s.table
	return changed, nil
}

// lookAt reads a block's entry anew.
func (s *spill) lookAt(block int) error {
	at := entryBytes * block
	return s.read(s.table[at:at+entryBytes], int64(at))
}

// read reads entries; what lies behind the file's end is zero.
func (s *spill) read(p []byte, at int64) error {
	n, err := s.file.ReadAt(p, at)
	if clear(p[n:]); errors.Is(err, io.EOF) {
		return nil
	}
	return bare(err)
}

// entry says where a block lies; ok is false where it is not there.
func (s *spill) entry(block int) (at span, sum uint32, ok bool) {
	e := s.table[entryBytes*block:][:entryBytes]
	at.begin = int64(binary.LittleEndian.Uint64(e))
	at.end = at.begin + int64(binary.LittleEndian.Uint64(e[8:]))
	sum = binary.LittleEndian.Uint32(e[16:])
	ok = at.begin > 0 && at.end >= at.begin && at.begin != s.bad[block] &&
		binary.LittleEndian.Uint32(e[20:]) == entrySum(block, e)
	return at, sum, ok
}

func entrySum(block int, e []byte) uint32 {
	number := binary.LittleEndian.AppendUint64(nil, uint64(block))
	return crc32.Update(crc32.ChecksumIEEE(e[:20]), crc32.IEEETable, number)
}

// find answers a block's bytes; nil where they are not there, or are not what was put there: then it is as if nobody
// had put them.
func (s *spill) find(block int) ([]byte, error) {
	at, sum, ok := s.entry(block)
	if !ok {
		return nil, nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return nil, err
	}
	if at.end > info.Size() { // of what lies behind its end nothing may be touched
		s.bad[block] = at.begin
		return nil, nil
	}
	region, err := s.view(at)
	if err != nil {
		return nil, err
	}
	if crc32.Checksum(region, spillSums) != sum {
		s.bad[block] = at.begin
		return nil, nil
	}
	return region, nil
}

// view maps a part of the file, with what lies around it.
func (s *spill) view(at span) ([]byte, error) {
	around := span{at.begin / mapBytes * mapBytes, (at.end + mapBytes - 1) / mapBytes * mapBytes}
	m, mapped := s.maps[around]
	if !mapped {
		var err error
		if m, err = syscall.Mmap(
			int(s.file.Fd()), around.begin, int(around.end-around.begin), syscall.PROT_READ, syscall.MAP_SHARED,
		); err != nil {
			return nil, fmt.Errorf("map it: %w", err)
		}
		s.maps[around] = m
	}
	return m[at.begin-around.begin : at.end-around.begin], nil
}

// claim takes a block for this rank, if no other has it or has put it there.
func (s *spill) claim(block int) (bool, error) {
	taken, err := s.lock(syscall.F_WRLCK, blockLocks+int64(block), 1)
	if !taken {
		return false, err
	}
	if err := s.lookAt(block); err != nil {
		return true, err
	}
	if _, _, there := s.entry(block); there {
		s.release(block)
		return false, nil
	}
	return true, nil
}

// release gives a block back.
func (s *spill) release(block int) { s.unlock(blockLocks + int64(block)) }

// publish puts a block's parts into the file, each where up says, and then its entry.
func (s *spill) publish(block int, parts [][]byte) error {
	length := 0
	for _, p := range parts {
		length = up(length) + len(p)
	}
	at, err := s.room(int64(length))
	if err != nil {
		return bare(err)
	}
	sum, n := uint32(0), 0
	var gap [align]byte
	for _, p := range parts {
		sum = crc32.Update(sum, spillSums, gap[:up(n)-n])
		n = up(n)
		if _, err := s.file.WriteAt(p, at+int64(n)); err != nil {
			return bare(err)
		}
		sum = crc32.Update(sum, spillSums, p)
		n += len(p)
	}
	e := make([]byte, entryBytes)
	binary.LittleEndian.PutUint64(e, uint64(at))
	binary.LittleEndian.PutUint64(e[8:], uint64(length))
	binary.LittleEndian.PutUint32(e[16:], sum)
	binary.LittleEndian.PutUint32(e[20:], entrySum(block, e))
	_, err = s.file.WriteAt(e, int64(entryBytes*block))
	return bare(err)
}

// room makes the file longer by so many bytes and answers where they begin.
func (s *spill) room(n int64) (int64, error) {
	if err := s.door(); err != nil {
		return 0, err
	}
	defer s.shut()
	info, err := s.file.Stat()
	if err != nil {
		return 0, err
	}
	at := max(info.Size(), int64(entryBytes*s.blocks))
	at = (at + align - 1) &^ (align - 1)
	return at, s.file.Truncate(at + n)
}

// sweepSpills takes away what ranks that were killed have left in a folder.
func sweepSpills(folder, but string) {
	names, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, n := range names {
		path := filepath.Join(folder, n.Name())
		if !isSpill(path) || path == but {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		old := &spill{path: path, file: f, spillPlace: spillPlace{ranks: mostRanks}}
		if taken, _ := old.lock(syscall.F_WRLCK, doorLock, 1); taken {
			old.remove()
		}
		_ = f.Close() // nothing was written
	}
}
