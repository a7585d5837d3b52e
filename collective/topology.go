package collective

import "hora/transport"

// topology is who shares memory with whom. Ranks are on one host, in the sense of
// Mesh.Hosts, exactly if they share a Board: a rank whose memory could not be mapped
// is a host of its own.
//
// Hosts may hold different numbers of ranks. Hierarchical algorithms cut a tensor
// into as many shards as the smallest host has ranks; the i-th rank of a host owns
// shard i, and the owners of one shard, one a host, talk over message links.
type topology struct {
	rank   int
	host   int     // my host's index
	hosts  [][]int // for each host its ranks, ascending
	of     []int   // for each rank its host
	seat   int     // my place among the ranks of my host
	shards int
	even   bool // all hosts hold equally many ranks
}

func readTopology(m transport.Mesh) topology {
	t := topology{rank: m.Rank(), even: true}
	apart := lonely(m)
	for r, h := range m.Hosts() {
		if apart {
			h = r
		}
		for len(t.hosts) <= h {
			t.hosts = append(t.hosts, nil)
		}
		t.of = append(t.of, h)
		if r == t.rank {
			t.host, t.seat = h, len(t.hosts[h])
		}
		t.hosts[h] = append(t.hosts[h], r)
	}
	t.shards = len(t.hosts[0])
	for _, local := range t.hosts {
		t.even = t.even && len(local) == len(t.hosts[0])
		t.shards = min(t.shards, len(local))
	}
	return t
}

// lonely reports links that number hosts but share no memory at all, as when a whole
// job runs over TCP on one machine.
func lonely(m transport.Mesh) bool {
	if m.Board() != nil {
		return false
	}
	mine := 0
	for _, h := range m.Hosts() {
		if h == m.Hosts()[m.Rank()] {
			mine++
		}
	}
	return mine > 1
}

// locals are the ranks of my host.
func (t *topology) locals() []int { return t.hosts[t.host] }

// alone reports that no memory is shared anywhere: every rank is a host.
func (t *topology) alone(size int) bool { return len(t.hosts) == size }

func (t *topology) everyone(m transport.Mesh) peers {
	p := peers{mesh: m, ranks: make([]int, m.Size()), me: m.Rank()}
	for i := range p.ranks {
		p.ranks[i] = i
	}
	return p
}

func (t *topology) shardPeers(m transport.Mesh) peers {
	p := peers{mesh: m, me: t.host}
	if t.seat >= t.shards {
		return p
	}
	for _, local := range t.hosts {
		p.ranks = append(p.ranks, local[t.seat])
	}
	return p
}

func (t *topology) headPeers(m transport.Mesh) peers {
	return peers{mesh: m, ranks: make([]int, len(t.hosts)), me: t.host}
}

// headsFor makes one rank a host the head of it: root on its own host, else the
// first. It returns the heads and the index among them of root's host.
func (c *Comm) headsFor(root int) (*peers, int) {
	host := c.topo.of[root]
	for h, local := range c.topo.hosts {
		c.heads.ranks[h] = local[0]
	}
	c.heads.ranks[host] = root
	return &c.heads, host
}

// isHead reports whether I am my host's head as headsFor left it.
func (c *Comm) isHead() bool { return c.heads.ranks[c.topo.host] == c.topo.rank }
