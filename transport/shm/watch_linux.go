package shm

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hora/transport"
)

const (
	beatEvery = time.Second
	// grace is how long a rank whose process has ended may be missed by nobody before
	// this rank's mesh fails over it: see transport.Board.
	grace = 300 * time.Millisecond
	// exitTries × exitPause is how long the reason for a process's end may take: it is
	// known once its parent has asked.
	exitTries = 5
	exitPause = 4 * time.Millisecond
)

// watchProcess waits for the end of a seat's process.
func (l *Link) watchProcess(seat int, process *os.File) {
	defer l.work.Done()
	raw, err := process.SyscallConn()
	if err != nil {
		return
	}
	ended := false
	raw.Read(func(fd uintptr) bool { // returns with an error when Close closes the file
		ended = hasEnded(int(fd))
		return ended
	})
	if !ended {
		return
	}
	why := "process ended"
	raw.Control(func(fd uintptr) {
		for range exitTries {
			if text, ok := exitText(int(fd)); ok {
				why = text
				return
			}
			if !l.pauseFor(exitPause) {
				return
			}
		}
	})
	l.lose(seat, why)
}

func hasEnded(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLIN|unix.POLLHUP) != 0
}

// exitText says how a process ended, as far as the kernel tells others than its
// parent (Linux 6.15).
func exitText(pidfd int) (text string, ok bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if unix.IoctlPidfdInfo(pidfd, &info) != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return "", false
	}
	status := unix.WaitStatus(info.Exit_code)
	switch {
	case status.Signaled():
		return fmt.Sprintf("process killed by signal %d", status.Signal()), true
	case status.ExitStatus() != 0:
		return fmt.Sprintf("process ended with exit code %d", status.ExitStatus()), true
	}
	return "process ended", true
}

// lose records that a seat is lost, unless it left in order, and fails the mesh if
// nobody has noticed within the grace.
func (l *Link) lose(seat int, why string) {
	if seat == l.seat || l.board.Left(seat) {
		return
	}
	l.segment.pulses[seat].declare(why)
	l.miss.Do(func() { close(l.missed) })
	if l.pauseFor(grace) {
		if err := l.failure(); err != nil {
			l.board.Fail(err)
		}
	}
}

// pauseFor waits and reports whether the link is still open.
func (l *Link) pauseFor(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.closing:
		return false
	}
}

// failure is the board's question about lost ranks. It runs in waits that have gone
// slow: no lock, and no allocation while nobody is lost.
func (l *Link) failure() error {
	for seat, p := range l.segment.pulses {
		if atomic.LoadUint32(&p.lost) != 2 {
			continue
		}
		why, _ := p.reason()
		if seat == l.seat {
			why += "; the other ranks of this host have gone on without it"
		} else if l.board.Left(seat) {
			continue
		}
		return &transport.PeerLostError{Rank: l.cfg.Ranks[seat], Host: l.cfg.Host, Reason: why}
	}
	return nil
}

// lostSeat reports a seat that is known to be lost.
func (l *Link) lostSeat(seat int) bool { return atomic.LoadUint32(&l.segment.pulses[seat].lost) == 2 }

// pulseWatch is what one rank knows of another's heart.
type pulseWatch struct {
	beat   uint64
	silent time.Duration
}

// beat keeps this rank's pulse and looks at the others'. Its own pauses (a stopped
// process, a suspended machine) count as at most two beats of silence, so a rank
// that was stopped itself accuses nobody.
func (l *Link) beat(every time.Duration) {
	defer l.work.Done()
	tick := time.NewTicker(every)
	defer tick.Stop()
	seen := make([]pulseWatch, len(l.segment.pulses))
	last := time.Now()
	for {
		select {
		case <-l.closing:
			return
		case <-tick.C:
		}
		now := time.Now()
		passed := min(now.Sub(last), 2*every)
		last = now
		atomic.AddUint64(&l.segment.pulses[l.seat].beat, 1)
		for seat := range seen {
			l.feel(seat, &seen[seat], passed)
		}
	}
}

func (l *Link) feel(seat int, w *pulseWatch, passed time.Duration) {
	p := l.segment.pulses[seat]
	if seat == l.seat || l.board.Left(seat) {
		return
	}
	if atomic.LoadUint32(&p.lost) == 2 { // as another rank has found
		l.miss.Do(func() { close(l.missed) })
		return
	}
	if beat := atomic.LoadUint64(&p.beat); beat != w.beat {
		w.beat, w.silent = beat, 0
		return
	}
	if w.silent += passed; w.silent < l.cfg.PeerTimeout {
		return
	}
	if l.cfg.Excused != nil && l.cfg.Excused(l.cfg.Ranks[seat]) {
		w.silent = 0
		return
	}
	why := fmt.Sprintf("silent for %v (HORA_PEER_TIMEOUT, hora run --peer-timeout): stopped or stuck", l.cfg.PeerTimeout)
	l.work.Add(1)
	go func() {
		defer l.work.Done()
		l.lose(seat, why)
	}()
	w.silent = 0
}
