package hosttest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Switch is a second network between the hosts of a Net, at the addresses Host.Via: a program passes each packet on,
// and Set makes it late, rare or lost, by directed pair and by seed. The first network stays clean, for ssh.
//
// Goroutines: one reads each host's device, one waits for the late packets of each pair. They end with the test.
type Switch struct {
	net  *Net
	ways [][]*way // by sender and receiver
	tuns []*os.File
}

// Switch makes it. Every way passes everything at first.
func (n *Net) Switch(seed uint64) *Switch {
	n.t.Helper()
	s := &Switch{net: n}
	stop := make(chan struct{})
	var all sync.WaitGroup
	n.t.Cleanup(func() {
		close(stop)
		for _, f := range s.tuns {
			f.Close()
		}
		all.Wait()
	})
	for i, h := range n.Hosts {
		h.Via = fmt.Sprintf("10.78.0.%d", i+1)
		f, err := openTun(h.pid)
		if err != nil {
			n.t.Fatalf("open a tunnel device on %s: %v", h.Name, err)
		}
		s.tuns = append(s.tuns, f)
		n.run(h.pid, "sh", "-c", "ip addr add "+h.Via+"/24 dev via && ip link set via txqueuelen 10000 up")
	}
	for i := range n.Hosts {
		row := make([]*way, len(n.Hosts))
		for k := range n.Hosts {
			to := s.tuns[k]
			row[k] = newWay(seed, i, k, stop, func(p []byte) {
				_, _ = to.Write(p) // a full or closed device loses it, as a cable would
			})
			all.Go(row[k].run)
		}
		s.ways = append(s.ways, row)
	}
	for i := range n.Hosts {
		all.Go(func() { s.forward(i) })
	}
	return s
}

// forward passes on what a host sends, by the last byte of the IPv4 destination.
func (s *Switch) forward(from int) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.tuns[from].Read(buf)
		if err != nil {
			return
		}
		if p := buf[:n]; n >= 20 && p[0]>>4 == 4 {
			if to := int(p[19]) - 1; to >= 0 && to < len(s.tuns) && to != from && p[16] == 10 && p[17] == 78 {
				s.ways[from][to].send(p, time.Now())
			}
		}
	}
}

func (s *Switch) index(h *Host) int {
	for i, o := range s.net.Hosts {
		if o == h {
			return i
		}
	}
	s.net.t.Fatalf("host %s is not on this switch", h.Name)
	return -1
}

// Set changes the way from one host to another, not the way back.
func (s *Switch) Set(from, to *Host, w Way) { s.ways[s.index(from)][s.index(to)].change(w) }

// SetAll changes all ways.
func (s *Switch) SetAll(w Way) {
	for _, row := range s.ways {
		for _, one := range row {
			one.change(w)
		}
	}
}

// Count is how many packets went and vanished on a way.
func (s *Switch) Count(from, to *Host) (passed, lost int64) {
	w := s.ways[s.index(from)][s.index(to)]
	return w.passed.Load(), w.lost.Load()
}

// openTun makes the device "via" in the network namespace of a process.
func openTun(pid int) (*os.File, error) {
	var fd int
	err := within(pid, func() error {
		var err error
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		req, err := unix.NewIfreq("via")
		if err == nil {
			req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
		}
		if err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "via"), nil // only now: a poller must not see it before it has its device
}

// Do runs f with the host's network: sockets that f opens itself are the host's, wherever they are used afterwards.
func (h *Host) Do(f func() error) {
	h.net.t.Helper()
	if err := within(h.pid, f); err != nil {
		h.net.t.Fatalf("on %s: %v", h.Name, err)
	}
}

// within runs f on a thread of its own in the network namespace of a process.
func within(pid int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the first thread never ends, and its network is what /proc/net shows
			defer runtime.UnlockOSThread()
			done <- within(pid, f) // on another: this one is held
			return
		}
		// Never unlocked: the thread ends with its goroutine.
		ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net")
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
