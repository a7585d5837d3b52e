// Package named reaches hosts by their names, as -H gives them: a name that means this machine by a process of its
// own, any other over ssh. Each name is a host, even where two mean the same machine.
package named

import (
	"context"
	"net"
	"slices"
	"sync"

	"hora/launch/local"
	"hora/launch/machine"
	"hora/launch/protocol"
	"hora/launch/reach"
	"hora/launch/ssh"
)

// atOnce is how many names are looked up side by side.
const atOnce = 64

// Config is what the two ways of reaching a host are made of.
type Config struct {
	Local     local.Config
	SSH       ssh.Config
	LocalName string                 // this machine's name
	IsLocal   func(name string) bool // which names mean this machine; nil asks the name server
}

// Reach tells the names of this machine from those of others.
type Reach struct {
	cfg   Config
	local *local.Reach
	ssh   *ssh.Reach
	room  chan struct{} // one token a look-up

	mu   sync.Mutex      // guards what follows; never held over a look-up
	here map[string]bool // by name: it means this machine
	left []string        // names that are being looked up
}

// New returns a Reach that has looked up nothing.
func New(cfg Config) *Reach {
	return &Reach{
		cfg: cfg, local: local.New(cfg.Local), ssh: ssh.New(cfg.SSH), here: map[string]bool{},
		room: make(chan struct{}, atOnce),
	}
}

// Look looks names up, all at once, by forward look-up only: a name server may be slow, or away. Names that were
// looked up before stay what they were.
func (r *Reach) Look(ctx context.Context, hosts []string) {
	var all sync.WaitGroup
	for _, name := range hosts {
		r.mu.Lock()
		_, known := r.here[name]
		fresh := !known && !r.plainly(name) && !slices.Contains(r.left, name)
		if fresh {
			r.left = append(r.left, name)
		}
		r.mu.Unlock()
		if !fresh {
			continue
		}
		all.Go(func() {
			r.room <- struct{}{}
			is := r.meansThis(ctx, name)
			<-r.room
			r.mu.Lock()
			r.here[name] = is
			r.left = slices.DeleteFunc(r.left, func(n string) bool { return n == name })
			r.mu.Unlock()
		})
	}
	all.Wait()
}

// Looking lists the names that are being looked up.
func (r *Reach) Looking() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.left)
}

// isHere says whether a host name means this machine.
func (r *Reach) isHere(name string) bool {
	if r.plainly(name) {
		return true
	}
	r.mu.Lock()
	is, known := r.here[name]
	r.mu.Unlock()
	return known && is || !known && r.meansThis(context.Background(), name)
}

// plainly says so of names that need not be looked up.
func (r *Reach) plainly(name string) bool {
	return name == "localhost" || name == r.cfg.LocalName || name == "127.0.0.1" || name == "::1"
}

func (r *Reach) meansThis(ctx context.Context, name string) bool {
	if r.cfg.IsLocal != nil {
		return r.cfg.IsLocal(name)
	}
	its, err := net.DefaultResolver.LookupIPAddr(ctx, name)
	if err != nil {
		return false
	}
	mine, _ := net.InterfaceAddrs()
	for _, ip := range its {
		for _, a := range mine {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip.IP) {
				return true
			}
		}
	}
	return false
}

// Called returns the name itself.
func (r *Reach) Called(host string) string { return host }

// Refuse refuses ranks on this machine for which there are fewer devices than each is to get, and to give another
// host's rank an input that was meant for it by name. What devices other hosts have, only they know.
func (r *Reach) Refuse(j *reach.Job) error {
	ranks := 0
	var names []string // that stand for this machine
	for i, name := range j.Hosts {
		if r.isHere(name) {
			if ranks++; i == 0 || j.Hosts[i-1] != name {
				names = append(names, name)
			}
		}
	}
	if err := r.local.Refuse(ranks, j.GPUs, names); err != nil {
		return err
	}
	if j.Input < 0 || r.isHere(j.Hosts[j.Input]) {
		return nil
	}
	host := j.Hosts[j.Input]
	return protocol.Fault(protocol.ExitUsage, "--stdin %d: rank %d runs on %s, and this machine's input stays here: name a rank of this machine, or start the ranks by hand, one in a terminal of its own on %s", j.Input, j.Input, host, host)
}

// Door returns the loopback's address where all hosts are this machine.
func (r *Reach) Door(hosts []string) string {
	if slices.ContainsFunc(hosts, func(name string) bool { return !r.isHere(name) }) {
		return ""
	}
	return machine.Loopback()
}

// Open reaches a host.
func (r *Reach) Open(host string, in *reach.Input) (reach.Way, error) {
	if r.isHere(host) {
		r.ssh.Beside()
		if r.local.Lasts() {
			return way(r.local.OpenLasting(host, in))
		}
		return way(r.local.Open(host, in))
	}
	if r.local.Lasts() {
		return way(r.ssh.OpenLasting(host))
	}
	return way(r.ssh.Open(host))
}

// way keeps a nil pointer out of the interface.
func way[W reach.Way](w W, err error) (reach.Way, error) {
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Cores says to which cores ranks would be bound; of other hosts only their agents know.
func (r *Reach) Cores(hosts []string, bind machine.Bind) []string {
	out := make([]string, len(hosts))
	var here []int
	for i, name := range hosts {
		out[i] = "chosen there"
		if r.isHere(name) {
			here = append(here, i)
		}
	}
	for k, cores := range r.local.Cores(len(here), bind) {
		out[here[k]] = cores
	}
	return out
}

// Last has agents wait for another launcher when this one dies.
func (r *Reach) Last(l reach.Last) {
	r.local.Last(l)
	r.ssh.Last(l)
}

// Begun starts what looks after this machine's agents.
func (r *Reach) Begun(warn func(text string)) { r.local.Begun(warn) }

// Close ends it.
func (r *Reach) Close() { r.local.Close() }
