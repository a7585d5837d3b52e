package collective

// sendRecv is one message between two ranks of the group.
func (c *Comm) sendRecv(call *Call) error {
	if call.Kind == SendTo {
		return c.mesh.Send(call.Peer, call.Send.Bytes())
	}
	return c.mesh.Recv(call.Peer, call.Recv.Bytes())
}
