package server

import (
	"bufio"
	"net"

	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
)

// What a back end brings along beside the four calls. The queue needs none of it.

// hostsOf are the nodes of a back end that come and go.
func hostsOf(back backend.Backend) backend.Nodes {
	if all, has := back.(backend.Nodes); has {
		return all
	}
	return noNodes{}
}

func (s *Server) hasNodes() bool {
	_, none := s.hosts.(noNodes)
	return !none
}

// noNodesText is what those are told who would have nodes come.
const noNodesText = "this server's jobs run where no nodes can be added: give them to pool default"

// noNodes is of a back end that has none.
type noNodes struct{}

func (noNodes) Upgraded() string                                     { return "" }
func (noNodes) Enter(conn net.Conn, _ *bufio.Reader, _ backend.Gate) { conn.Close() }
func (noNodes) Extra(_, _ string, conn net.Conn)                     { conn.Close() }
func (noNodes) Expect(schedule.Node)                                 {}
func (noNodes) Instance(string) string                               { return "" }
func (noNodes) Shared(string) string                                 { return "" }
func (noNodes) Cut(string)                                           {}
func (noNodes) End(string)                                           {}

// makeAhead has a job's environment made while it waits, where that can be.
func (s *Server) makeAhead(d *client.Document) {
	if can, is := s.back.(backend.Ahead); is {
		can.Ahead(d.Pool, d.Node, d.Environment)
	}
}

// capacity is what there is.
func (s *Server) capacity() []schedule.Node {
	all, _ := s.back.Capacity()
	return all
}
