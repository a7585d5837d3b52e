package tcp

import (
	"slices"
	"time"

	"hora/internal/secret"
)

// underway names a connection that is being made: its other end may count it already.
type underway struct {
	purpose string
	at      place
}

// toPeer is what this process dials.
func toPeer(me secret.Identity) underway {
	if me.Purpose == purposeControl {
		return controlTo(me.Peer)
	}
	return dataTo(me.Group, me.Peer, me.Lane)
}

// byPeer is what a peer has dialled.
func byPeer(peer secret.Identity) underway {
	peer.Peer = peer.Rank
	return toPeer(peer)
}

func dataTo(group uint64, rank int, lane uint32) underway {
	return underway{purposeData, place{group, rank, lane}}
}

// controlTo belongs to no group.
func controlTo(rank int) underway { return underway{purposeControl, place{rank: rank}} }

// begin notes that this end of a connection is about to say who it is, after which the other may count it. false: this
// process dials it for a group that it is about to give up, and nobody is to count it.
func (n *Node) begin(c underway, dialled bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.meshes[c.at.group]; dialled && c.purpose == purposeData && m != nil && m.late {
		return false
	}
	n.underway[c] = time.Now()
	return true
}

// end forgets it: the connection has its place here, or none.
func (n *Node) end(c underway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.underway[c]; known {
		delete(n.underway, c)
		n.wake()
	}
}

// coming lists the ranks whose connections are on their way; n.mu is held.
func (m *Mesh) coming() []int {
	var ranks []int
	for r, p := range m.cfg.Peers {
		for _, c := range []underway{controlTo(p.Rank), dataTo(m.cfg.Group, p.Rank, 0)} {
			if since, known := m.n.underway[c]; known && time.Since(since) < secret.ProofTimeout {
				ranks = append(ranks, r)
				break
			}
		}
	}
	return ranks
}

// onlyComing reports that no rank is missing but such whose connections are on their way.
func onlyComing(missing, coming []int) bool {
	return !slices.ContainsFunc(missing, func(r int) bool { return !slices.Contains(coming, r) })
}
