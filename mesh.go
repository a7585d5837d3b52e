package hora

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"hora/transport"
	"hora/transport/mem"
	"hora/transport/shm"
	"hora/transport/tcp"
)

// mesh joins the members of g: memory with the ranks of this host, TCP with the rest.
func (w *World) mesh(ctx context.Context, g *Group, id uint64) (transport.Mesh, error) {
	if len(g.ranks) == 1 {
		c, err := mem.New(1, mem.Config{Hosts: []int{0}})
		if err != nil {
			return nil, err
		}
		return c.Mesh(0), nil
	}
	seats := w.neighbours(g.ranks)
	var local transport.Mesh
	if len(seats) > 1 && w.cfg.Links != "tcp" {
		link, err := w.share(ctx, g, id, seats)
		var no *shm.UnavailableError
		switch {
		case err == nil:
			g.link, local = link, link
		case !errors.As(err, &no) || w.cfg.Links == "shm":
			return nil, err
		default:
			w.cfg.Log.Warn("ranks of this host go by TCP", "host", w.cfg.Host, "cause", err)
		}
	}
	if local == nil {
		seats = nil
	}
	hosts, names := w.layout(g.ranks)
	cfg := transport.RoutedConfig{
		Rank: slices.Index(g.ranks, w.cfg.Rank), Hosts: hosts, Names: names, Local: local,
		Seats: seats,
	}
	if len(seats) < len(g.ranks) {
		if w.cfg.Links == "shm" {
			return nil, fmt.Errorf("ranks %v are not all on host %s and HORA_LINKS=shm allows nothing else", g.ranks, w.cfg.Host)
		}
		remote, err := w.connect(ctx, g, id, seats)
		if err != nil {
			if local != nil {
				err = errors.Join(err, local.Close())
			}
			return nil, err
		}
		cfg.Remote = remote
	}
	m, err := transport.NewRouted(cfg)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// neighbours returns the group ranks that can share memory with this one, itself included.
func (w *World) neighbours(ranks []int) []int {
	var seats []int
	for i, r := range ranks {
		if w.members[r].HostID == w.members[w.cfg.Rank].HostID && w.members[r].Unix != "" {
			seats = append(seats, i)
		}
	}
	return seats
}

// layout numbers the members' hosts by first appearance. Ranks that share memory are on
// one host for the algorithms, whatever its names are.
func (w *World) layout(ranks []int) (hosts []int, names []string) {
	seen := map[string]int{}
	for _, r := range ranks {
		m := w.members[r]
		if _, ok := seen[m.HostID]; !ok {
			seen[m.HostID] = len(seen)
		}
		hosts = append(hosts, seen[m.HostID])
		names = append(names, m.Host)
	}
	return hosts, names
}

// share opens the memory of the ranks on this host.
func (w *World) share(ctx context.Context, g *Group, id uint64, seats []int) (*shm.Link, error) {
	c := &w.cfg
	return shm.Open(ctx, shm.Config{
		Secret: c.Secret, Job: c.Job, Epoch: w.number, Group: id,
		Rank: slices.Index(g.ranks, c.Rank), Ranks: seats, Host: c.Host,
		Listener: w.memory, Leader: w.members[g.ranks[seats[0]]].Unix,
		PeerTimeout: c.PeerTimeout, Excused: func(seat int) bool { return w.excused(g.ranks[seat]) }, Log: c.Log,
	})
}

// connect opens the group's mesh over TCP.
func (w *World) connect(ctx context.Context, g *Group, id uint64, near []int) (*tcp.Mesh, error) {
	node, err := w.tcpNode()
	if err != nil {
		return nil, err
	}
	peers := make([]tcp.Peer, len(g.ranks))
	for i, r := range g.ranks {
		m := w.members[r]
		peers[i] = tcp.Peer{Rank: r, Host: m.Host, HostID: m.HostID, Addrs: m.Addrs}
	}
	return node.Open(ctx, tcp.MeshConfig{
		Group: id, Rank: slices.Index(g.ranks, w.cfg.Rank), Peers: peers, Lanes: w.cfg.Lanes,
		Lazy: func(rank int) bool { return slices.Contains(near, rank) },
	})
}

// tcpNode returns this process's node, made when the first group needs it: until then
// connections wait in the kernel.
func (w *World) tcpNode() (*tcp.Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.node != nil {
		return w.node, nil
	}
	if w.listener == nil {
		return nil, errors.New("open tcp: this rank listens nowhere")
	}
	c := &w.cfg
	node, err := tcp.NewNode(w.listener, tcp.NodeConfig{
		Secret: c.Secret, Job: c.Job, Epoch: w.number, Rank: c.Rank, Host: c.Host,
		PeerTimeout: c.PeerTimeout, Excused: w.excused, TLS: c.TLS, Log: c.Log, Strangers: c.refused.Strangers,
	})
	if err != nil {
		return nil, err
	}
	w.node, w.listener = node, nil
	return node, nil
}
