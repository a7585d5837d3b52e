package collective

// barrier holds every rank until all have come. On one host the arrivals are the
// barrier; with several the first rank of each host carries on between the hosts.
func (c *Comm) barrier(*Call) error {
	if len(c.topo.hosts) == 1 {
		return nil
	}
	if c.board == nil {
		if c.topo.alone(c.mesh.Size()) {
			return c.all.barrier()
		}
		heads, _ := c.headsFor(c.topo.rank)
		return heads.barrier()
	}
	heads, _ := c.headsFor(c.topo.locals()[0])
	if c.topo.seat == 0 {
		if err := heads.barrier(); err != nil {
			return err
		}
	}
	return c.together()
}
