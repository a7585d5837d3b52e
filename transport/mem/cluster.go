package mem

import (
	"fmt"
	"sync"
	"time"

	"hora/transport"
)

// Config says what kind of cluster to build. The zero value is one host a rank, no
// faults, and the product's timeouts.
type Config struct {
	// Hosts is the host of each rank, numbered by first appearance; nil gives every
	// rank a host of its own. Ranks that share one also share a Board.
	Hosts []int
	// Board sets the sizes of the boards; Ranks, Host, Waiter, Regions, Failure and
	// Oversubscribed are filled in here.
	Board transport.BoardConfig
	// Script is the faults to happen.
	Script Script
	// PeerTimeout is the silence after which a rank is lost; 0 means 10 s.
	PeerTimeout time.Duration
	// Probe is how long a rank waits before it compares what the others are at; 0
	// means 1 s.
	Probe time.Duration
}

// Cluster is N ranks of one group in this process.
type Cluster struct {
	cfg   Config
	nodes []*Mesh
	host  []int
	board []*segment // by host; nil where a rank is alone

	// mu guards what all ranks see of failures. Lock order: Mesh.mu, then mu.
	mu      sync.Mutex
	lost    *transport.PeerLostError // the first rank lost; ends every later wait
	left    []bool                   // ranks that closed in order
	silent  []bool                   // ranks whose messages no longer arrive
	alarms  []*time.Timer
	explain map[question]*answers
}

// question names the operation that failed to match.
type question struct {
	seq    uint64
	lo, hi int // the two ranks of a pair's operation, else 0, 0
}

type answers struct {
	from  int // who asked first
	texts [][]byte
	given []bool
}

// New builds a cluster of n ranks.
func New(n int, cfg Config) (*Cluster, error) {
	if n < 1 {
		return nil, fmt.Errorf("build cluster of %d ranks: at least one is needed", n)
	}
	if cfg.PeerTimeout == 0 {
		cfg.PeerTimeout = 10 * time.Second
	}
	if cfg.Probe == 0 {
		cfg.Probe = time.Second
	}
	c := &Cluster{cfg: cfg, host: cfg.Hosts, explain: map[question]*answers{}}
	if c.host == nil {
		c.host = make([]int, n)
		for i := range c.host {
			c.host[i] = i
		}
	}
	if len(c.host) != n {
		return nil, fmt.Errorf("build cluster: %d ranks, but hosts for %d", n, len(c.host))
	}
	next := 0
	for _, h := range c.host {
		if h > next || h < 0 {
			return nil, fmt.Errorf("build cluster: hosts %v are not numbered by first appearance", c.host)
		}
		if h == next {
			next++
		}
	}
	for r := range n {
		c.nodes = append(c.nodes, newMesh(c, r, n))
	}
	if err := c.addBoards(next); err != nil {
		return nil, err
	}
	return c, nil
}

// Mesh is rank's end.
func (c *Cluster) Mesh(rank int) *Mesh { return c.nodes[rank] }

// Size is the number of ranks.
func (c *Cluster) Size() int { return len(c.nodes) }

// Close closes every rank's mesh.
func (c *Cluster) Close() {
	for _, m := range c.nodes {
		_ = m.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.alarms {
		t.Stop()
	}
}

// Kill ends a rank as SIGKILL would: its own verbs fail with ErrKilled, every other
// rank's waits with *transport.PeerLostError.
func (c *Cluster) Kill(rank int) { c.end(rank, "killed by signal 9", ErrKilled) }

// end makes a rank stop for others with that reason and for itself with err.
func (c *Cluster) end(rank int, reason string, err error) {
	m := c.nodes[rank]
	m.mu.Lock()
	already := m.gone
	m.gone = true
	if m.broken == nil {
		m.broken = err
	}
	m.mu.Unlock()
	if already {
		return
	}
	if reason == transport.ReasonLeft {
		// A rank that left in order is missed only by those who wait for it itself.
		c.mu.Lock()
		c.left[rank] = true
		c.mu.Unlock()
		if m.board != nil {
			m.board.Leave()
		}
	} else {
		c.lose(rank, reason)
	}
	c.wakeAll()
}

// lose declares a rank lost without it knowing.
func (c *Cluster) lose(rank int, reason string) *transport.PeerLostError {
	c.mu.Lock()
	if c.lost == nil {
		c.lost = &transport.PeerLostError{Rank: rank, Host: hostName(c.host[rank]), Reason: reason}
	}
	lost := c.lost
	c.mu.Unlock()
	return lost
}

func (c *Cluster) isLost(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost != nil && c.lost.Rank == rank
}

func (c *Cluster) wakeAll() {
	for _, m := range c.nodes {
		m.wake()
		m.notify()
	}
	for _, s := range c.board {
		if s != nil {
			s.wait.wakeAll()
		}
	}
}

// failure is why no wait on a board may go on, nil if there is no such reason.
func (m *Mesh) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		return c.lost
	}
	return m.explained()
}

func hostName(h int) string { return fmt.Sprintf("host%d", h) }
