package tcp

import (
	"fmt"
	"log/slog"
	"time"

	"hora/internal/secret"
)

// NodeConfig says who this process is. Zero values of the times and of Log mean
// the defaults.
type NodeConfig struct {
	Secret secret.Secret
	Job    string
	Epoch  uint64
	Rank   int    // this process's rank in the job; it names it to all its peers
	Host   string // this host's name, for error texts

	// PeerTimeout is how long a peer may be silent before it counts as lost; 0: 10 s.
	// Heartbeat is how often this process is heard; 0: 1 s. It must be the same on
	// all ranks, and well below PeerTimeout.
	PeerTimeout time.Duration
	Heartbeat   time.Duration
	// Excused says of a peer, by its rank in the job, that somebody holds its process on purpose, by a debugger for
	// one: it is waited for. It is asked when a peer has been silent for too long; nil excuses nobody.
	Excused func(rank int) bool

	// TLS encrypts every connection after its proof; all ranks must agree.
	TLS bool
	Log *slog.Logger // nil: none
	// Strangers hears of refused connections; nil: Log tells of them, of the first three and then once a minute.
	Strangers *secret.Strangers
}

func (c *NodeConfig) setDefaults() error {
	if c.Secret.IsZero() {
		return fmt.Errorf("open tcp: there is no secret; set HORA_SECRET_FILE")
	}
	if c.PeerTimeout <= 0 {
		c.PeerTimeout = 10 * time.Second
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = min(time.Second, c.PeerTimeout/4)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Strangers == nil {
		c.Strangers = secret.NewStrangers(func(r secret.Refused) { c.Log.Warn(r.String()) })
	}
	return nil
}

// Peer is one rank of a group as rendezvous describes it.
type Peer struct {
	Rank   int    // its rank in the job (its node's NodeConfig.Rank)
	Host   string // name, for error texts
	HostID string // ranks with equal ids are on one host; "": Host
	Addrs  []string
}

// MeshConfig describes one group.
type MeshConfig struct {
	Group uint64 // the same on all its members, and unique among a node's open meshes
	Rank  int    // this process's rank in the group: its index in Peers
	Peers []Peer // in the order of group ranks, this process among them

	// Lazy reports ranks that another link usually reaches: no data connection is
	// made to them before one is needed. nil: none.
	Lazy func(rank int) bool

	// Lanes is the number of connections over which a pair spreads messages of at
	// least StripeBytes; 0: 1. StripeBytes 0: 1 MiB. The same on all ranks.
	Lanes       int
	StripeBytes int

	// SocketBytes is asked for each send and receive buffer; 0: 1 MiB, <0: the
	// system's own choice.
	SocketBytes int

	// Oversubscribed says that the ranks on this host are more than its cores: then
	// a wait polls once, lets others run, and sleeps. It is assumed anyway where this
	// group alone has more. Polls and Yields override how often; 0: by Oversubscribed.
	Oversubscribed bool
	Polls, Yields  int

	full int // greatest size with a control connection per pair; 0: fullSize
}

const maxLanes = 8

func (c *MeshConfig) setDefaults() error {
	if c.Rank < 0 || c.Rank >= len(c.Peers) {
		return fmt.Errorf("open group %d: rank %d is not among its %d ranks", c.Group, c.Rank, len(c.Peers))
	}
	if c.Lanes == 0 {
		c.Lanes = 1
	}
	if c.Lanes < 0 || c.Lanes > maxLanes {
		return fmt.Errorf("open group %d: %d connections per pair; use 1 to %d", c.Group, c.Lanes, maxLanes)
	}
	if c.StripeBytes <= 0 {
		c.StripeBytes = 1 << 20
	}
	if c.full == 0 {
		c.full = fullSize
	}
	if c.SocketBytes == 0 {
		c.SocketBytes = 1 << 20
	}
	if c.Polls == 0 {
		// A poll costs 0.2 µs, a switch to another process on the same core 0.6 µs.
		// With a core for each rank yielding now and then costs a time slice.
		c.Polls = 250
		if c.Oversubscribed || c.here() > onlineCores() {
			c.Polls = 1
		}
	}
	if c.Yields == 0 {
		c.Yields = 100
	}
	return nil
}

// here is the number of the group's ranks on this host.
func (c *MeshConfig) here() int {
	n := 0
	for _, p := range c.Peers {
		if p.host() == c.Peers[c.Rank].host() {
			n++
		}
	}
	return n
}

// host is what tells one host from another.
func (p *Peer) host() string {
	if p.HostID != "" {
		return p.HostID
	}
	return p.Host
}

// eager reports whether two ranks of a group of n are partners in the usual
// schedules (all pairs in a small group; ring, recursive doubling and trees in a
// large one), so that they are connected when the group opens.
func eager(a, b, n int) bool {
	if n <= 16 {
		return true
	}
	power := func(x int) bool { return x > 0 && x&(x-1) == 0 }
	return power(a^b) || power((a-b+n)%n) || power((b-a+n)%n)
}
