package backend

import (
	"bufio"
	"net"

	"hora/job/schedule"
	"hora/server/client"
)

// Nodes is what a back end has beside the four calls whose nodes come and go: the server's pools make and end them, and
// its door lets them in. The queue asks it nothing. Other back ends have none of it: their capacity is as it is.
type Nodes interface {
	// Upgraded is the protocol's name in HTTP with which nodes come.
	Upgraded() string
	// Enter takes in a node whose connection has proved its token, and hears it until it goes.
	Enter(conn net.Conn, in *bufio.Reader, gate Gate)
	// Extra is a further connection of a node.
	Extra(session, id string, conn net.Conn)
	// Expect counts a node that an earlier server had as away, until it comes or there is no more patience.
	Expect(n schedule.Node)
	// Instance tells of a node's folder, where the node is there or away and not lost: the same name from another one
	// is another node.
	Instance(name string) string
	// Shared is what is to be said of a node some of whose devices another node of its machine has too; "" for nothing.
	Shared(name string) string
	// Cut ends the link of a node that is not let in any more.
	Cut(name string)
	// End tells a node to end. It is no part of the capacity any more when this returns.
	End(name string)
}

// Gate is what a server knows of those who may come.
type Gate struct {
	Check func(c *Comer) error // refuses it, in a sentence
	// The node's own token, where it came with a joining one; asked for when its name is kept for it.
	Token func(c *Comer) (string, error)
	Lives func(name string, id [2]int64) bool // says whether an attempt goes on
}

// Comer is a node that comes, as it says itself.
type Comer struct {
	Name     string
	Pool     string
	Instance string // of its folder
	Slots    int
}

// Ahead is of a back end that can make an environment before a job needs it, on the nodes of a pool, or on one of them.
type Ahead interface {
	Ahead(pool, node string, e *client.Environment)
}
