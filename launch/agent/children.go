package agent

import "syscall"

// children are all processes below the agent: those that it has forked, and what these have left behind.
type children struct {
	events  chan<- any // to the agent's owner
	left    bool       // some are
	reaping bool
	forked  bool // something was forked since the reaper began
}

// more collects ended children, of which there is one more, until there are none.
func (c *children) more() {
	c.left = true
	if c.reaping {
		c.forked = true
		return
	}
	c.reaping, c.forked = true, false
	go func() {
		for {
			var st syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &st, syscall.WUNTRACED, nil)
			switch {
			case err == syscall.EINTR:
			case err != nil:
				c.events <- childless{}
				return
			case st.Stopped():
				c.events <- halted{pid, st.StopSignal()}
			default:
				c.events <- reaped{pid, st}
			}
		}
	}()
}

// none hears that the reaper has found none; what was forked since then is another's.
func (c *children) none() {
	c.reaping = false
	if c.left = c.forked; c.forked {
		c.more()
	}
}
