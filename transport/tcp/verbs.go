package tcp

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/wire"
	"hora/transport"
)

// pollSlice bounds one sleep, so that alarms are seen.
const pollSlice = 50 * time.Millisecond

// Send returns when p may be reused.
func (m *Mesh) Send(to int, p []byte) error { return m.Exchange(to, p, -1, nil) }

// Recv fills p.
func (m *Mesh) Recv(from int, p []byte) error { return m.Exchange(-1, nil, from, p) }

// Exchange sends and receives at once.
func (m *Mesh) Exchange(to int, out []byte, from int, in []byte) error {
	m.enter()
	err := m.exchange(to, out, from, in)
	m.leave()
	return err
}

func (m *Mesh) exchange(to int, out []byte, from int, in []byte) error {
	if m.alarm.Load()&alarmFailed != 0 {
		return m.verdict(-1, -1)
	}
	if to == m.cfg.Rank || from == m.cfg.Rank {
		return m.toSelf(to, out, from, in)
	}
	if m.stamp.Seq&transport.PairSeq != 0 {
		m.notePair(to, from)
	}
	nt, nr := 0, 0
	if to >= 0 {
		if err := m.checkRank(to); err != nil {
			return err
		}
		nt = m.parts(len(out))
		for i := range nt {
			l, err := m.lane(to, i)
			if err != nil {
				return m.settle(err, to, from, to)
			}
			m.tx[i].begin(l, m.stamp, uint8(i), part(out, i, nt))
		}
	}
	if from >= 0 {
		if err := m.checkRank(from); err != nil {
			return err
		}
		nr = m.parts(len(in))
		for i := range nr {
			l, err := m.lane(from, i)
			if err != nil {
				m.abandon(nt, 0)
				return m.settle(err, to, from, from)
			}
			m.rx[i].begin(l, m.stamp, uint8(i), part(in, i, nr))
		}
	}
	if who, err := m.progress(to, nt, from, nr); err != nil {
		m.abandon(nt, nr)
		return m.settle(err, to, from, who)
	}
	if to >= 0 {
		m.sent.add(len(out))
	}
	if from >= 0 {
		m.received.add(len(in))
	}
	return nil
}

// parts is over how many connections a message of n bytes goes.
func (m *Mesh) parts(n int) int {
	if n < m.cfg.StripeBytes || m.stamp.Seq&transport.PairSeq != 0 {
		return 1
	}
	return m.cfg.Lanes
}

// part is the i-th of n parts of p, in whole cache lines but for the last.
func part(p []byte, i, n int) []byte {
	if n == 1 {
		return p
	}
	each := len(p) / n &^ 63
	if i == n-1 {
		return p[i*each:]
	}
	return p[i*each : (i+1)*each : (i+1)*each]
}

func (m *Mesh) abandon(nt, nr int) {
	for i := range nt {
		m.tx[i].abandon()
	}
	for i := range nr {
		m.rx[i].abandon()
	}
}

// progress drives all parts to their end. On an error, who is the rank whose
// connection it came from.
func (m *Mesh) progress(to, nt, from, nr int) (who int, err error) {
	var txDone, rxDone uint32 // a bit per finished part
	txAll, rxAll := uint32(1)<<nt-1, uint32(1)<<nr-1
	for idle := 0; ; {
		moved := false
		for i := 0; txDone != txAll && i < nt; i++ {
			if txDone>>i&1 == 1 {
				continue
			}
			m1, err := m.tx[i].push()
			moved = moved || m1
			if err == nil {
				txDone |= 1 << i
			} else if err != errAgain {
				if from == to { // what the peer said before it hung up counts more
					if why := m.lastWords(nr, rxDone); why != nil {
						err = why
					}
				}
				return to, err
			}
		}
		for i := 0; rxDone != rxAll && i < nr; i++ {
			if rxDone>>i&1 == 1 {
				continue
			}
			m1, err := m.rx[i].pull()
			moved = moved || m1
			if err == nil {
				rxDone |= 1 << i
			} else if err != errAgain {
				m.blocked = m.rx[i].l
				return from, err
			}
		}
		if txDone == txAll && rxDone == rxAll {
			return -1, nil
		}
		if moved {
			idle = 0
			continue
		}
		wt, wr := to, from
		if txDone == txAll {
			wt = -1
		}
		if rxDone == rxAll {
			wr = -1
		}
		if m.alarm.Load() != 0 {
			if err := m.verdict(wt, wr); err != nil {
				return -1, err
			}
		}
		idle++
		switch {
		case idle <= m.cfg.Polls:
		case idle <= m.cfg.Polls+m.cfg.Yields:
			yield()
		default:
			if err := m.checkDeadline(wt, wr); err != nil {
				return -1, err
			}
			if m.sleep(nt, txDone, nr, rxDone) > 0 {
				idle = m.cfg.Polls
			}
		}
	}
}

// lastWords is why receiving ends where sending has failed; nil: it does not.
func (m *Mesh) lastWords(nr int, done uint32) error {
	for i := range nr {
		if done>>i&1 == 0 {
			if _, err := m.rx[i].pull(); err != nil && err != errAgain {
				m.blocked = m.rx[i].l
				return err
			}
		}
	}
	return nil
}

// sleep waits until a socket is ready, but not for long.
func (m *Mesh) sleep(nt int, txDone uint32, nr int, rxDone uint32) int {
	n := 0
	for i := range nt {
		if txDone>>i&1 == 0 {
			m.polls[n] = unix.PollFd{Fd: int32(m.tx[i].l.fd), Events: unix.POLLOUT}
			n++
		}
	}
	for i := range nr {
		if rxDone>>i&1 == 0 {
			m.polls[n] = unix.PollFd{Fd: int32(m.rx[i].l.fd), Events: unix.POLLIN}
			n++
		}
	}
	wait := pollSlice
	if !m.deadline.IsZero() {
		wait = max(0, min(wait, time.Until(m.deadline)+time.Millisecond))
	}
	return pollWait(m.polls[:n], wait)
}

func (m *Mesh) checkDeadline(to, from int) error {
	if m.deadline.IsZero() || time.Now().Before(m.deadline) {
		return nil
	}
	who := from
	if who < 0 {
		who = to
	}
	return &transport.DeadlineError{Rank: who, Seq: m.stamp.Seq, After: time.Since(m.began)}
}

// settle turns what ended a verb into what the caller is told, and makes final
// what is final. who is the rank at the other end of the failing connection.
func (m *Mesh) settle(err error, to, from, who int) error {
	switch {
	case err == errStamp:
		h := m.blocked.head
		return &transport.MismatchError{Rank: who, Mine: m.stamp, Theirs: transport.Stamp{Seq: h.Seq, Print: h.Print}}
	case err == errAbort:
		return &transport.MismatchError{Rank: -1, Mine: m.stamp}
	case err == errLeft:
		m.loseRank(who, loss{reason: transport.ReasonLeft})
		err = lostError(who, m.HostName(who), loss{reason: transport.ReasonLeft})
	case err == io.EOF, isErrno(err), errors.Is(err, wire.ErrFrame):
		err = m.hungUp(err, who)
	}
	var mismatch *transport.MismatchError
	if errors.As(err, &mismatch) {
		return err
	}
	m.Fail(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed // the first error is the one that lasts
}

func isErrno(err error) bool {
	var e syscall.Errno
	return errors.As(err, &e)
}

// hungUp finds out why a data connection has broken. The control connection knows
// best; it hears of a dead process at about the same time.
func (m *Mesh) hungUp(err error, who int) error {
	why := loss{reason: reasonClosed}
	switch {
	case errors.Is(err, wire.ErrFrame):
		why.reason = "its data connection carried garbage"
	case err == syscall.ECONNRESET, err == syscall.EPIPE:
		why.reason = reasonReset
	case isErrno(err):
		why.reason = fmt.Sprintf("data connection: %v", err)
	}
	if !errors.Is(err, wire.ErrFrame) {
		for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
			m.mu.Lock()
			known, ok := m.lost[who]
			failed, first := m.failed, m.doomFor
			m.mu.Unlock()
			switch {
			case failed != nil:
				return failed
			case ok && known.reason != transport.ReasonLeft && first != nil:
				return first // the loss that began it
			case ok:
				return m.lostBy(who, known)
			}
		}
	}
	m.loseRank(who, why)
	return lostError(who, m.HostName(who), why)
}

// toSelf is an exchange of a rank with itself.
func (m *Mesh) toSelf(to int, out []byte, from int, in []byte) error {
	if to != from {
		return fmt.Errorf("use mesh: rank %d sends to itself without receiving from itself", m.cfg.Rank)
	}
	if len(out) != len(in) {
		return &transport.MismatchError{Rank: m.cfg.Rank, Mine: m.stamp, Theirs: m.stamp}
	}
	copy(in, out)
	return nil
}

// notePair remembers with whom the present pair operation is.
func (m *Mesh) notePair(to, from int) {
	m.mu.Lock()
	if to >= 0 && to < len(m.cfg.Peers) {
		m.pairPeer, m.pairRole = to, wire.RoleSender
		m.pairSeen[2*to] = m.stamp.Seq
	}
	if from >= 0 && from < len(m.cfg.Peers) {
		if m.pairPeer = from; to >= 0 {
			m.pairRole = wire.RoleBoth
		} else {
			m.pairRole = wire.RoleReceiver
		}
		m.pairSeen[2*from+1] = m.stamp.Seq
	}
	m.mu.Unlock()
}
