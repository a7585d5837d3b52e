package launch

import (
	"syscall"

	"hora/event"
	"hora/internal/wire"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// links are the ways to a job's agents, in the order in which they were opened.
type links struct {
	spec     *settings
	record   *record
	mail     *mailbox
	all      []*link
	out      *output       // of the workers
	resuming chan struct{} // of an adopted job: closed when its agents are heard; nil for others
}

// open starts an agent for every one of the job's first hosts, all at once.
func (ls *links) open(hosts []Host, input func(host int) *reach.Input) error {
	for h := range hosts {
		l := &link{index: h, name: hosts[h].Name, called: ls.spec.Reach.Called(hosts[h].Name)}
		if err := l.open(ls.spec.Reach, input(h)); err != nil {
			return err
		}
		ls.all = append(ls.all, l)
	}
	ls.out.faults = func(err error) { ls.mail.events <- outputFault{err} }
	for _, l := range ls.all {
		ls.hear(l)
	}
	return nil
}

// add opens one to a host that comes while the job runs.
func (ls *links) add(l *link) error {
	if ls.record.lives() {
		l.muted, l.host = true, &reach.Host{}
	}
	if err := l.open(ls.spec.Reach, nil); err != nil {
		if ls.record.ledger != nil {
			ls.record.ledger.alone(errUnopened)
		}
		return err
	}
	if ls.resuming != nil {
		ls.guarded()
	}
	ls.all = append(ls.all, l)
	ls.hear(l)
	return nil
}

// hear starts a link's reader.
func (ls *links) hear(l *link) {
	l.reader.Add(1)
	go l.read(ls.mail.events, ls.out, ls.record.ledger != nil, ls.resuming)
}

// guarded starts what looks after this machine's agents, unless it runs.
func (ls *links) guarded() {
	ls.spec.Reach.Begun(func(text string) { ls.record.event(&event.Warning{Text: text}) })
}

// present returns the link of a host's agent that has not ended; nil where there is none.
func (ls *links) present(host string) *link {
	for _, l := range ls.all {
		if l.name == host && !l.ended && !l.done && !l.lost {
			return l
		}
	}
	return nil
}

// names returns the hosts', one for each link.
func (ls *links) names() (names []string) {
	for _, l := range ls.all {
		names = append(names, l.name)
	}
	return names
}

// running counts the agents that have not ended.
func (ls *links) running() int {
	n := 0
	for _, l := range ls.all {
		if !l.ended {
			n++
		}
	}
	return n
}

// send tells all agents.
func (ls *links) send(kind uint8, body []byte) {
	for _, l := range ls.all {
		l.send(kind, body)
	}
}

// forward passes a signal on to all workers.
func (ls *links) forward(sig syscall.Signal) {
	ls.send(protocol.CmdSignal, wire.AppendI64(wire.AppendI64(nil, -1), int64(sig)))
}

// kill cuts all ways.
func (ls *links) kill() {
	for _, l := range ls.all {
		l.kill()
	}
}

// ping asks agents whose end may go unseen for a sign of life and gives up on those that give none.
func (ls *links) ping() {
	for _, l := range ls.all {
		if l.host != nil && l.host.Silence > 0 && !l.ended {
			l.ping()
		}
	}
}

// close ends what is left of the agents and joins their readers.
func (ls *links) close() {
	// Readers may still post; nobody else listens now.
	drained := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			select {
			case <-ls.mail.events:
			case <-stop:
				return
			}
		}
	}()
	for _, l := range ls.all {
		l.writer.Finish()
		if !l.done {
			l.way.Abandon()
		}
	}
	for _, l := range ls.all {
		l.reader.Wait()
		l.writer.Close()
		l.way.Close()
	}
	close(stop)
	<-drained
	ls.spec.Reach.Close()
}
