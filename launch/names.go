package launch

import (
	"context"
	"net"
	"slices"
	"time"

	"hora/event"
)

// atOnce is how many names are looked up side by side.
const atOnce = 64

// locate finds out which hosts of the job are this machine, all at once: a name server may be slow, or away.
func (j *job) locate(ctx context.Context) error {
	used := 0 // hosts are filled in order
	for _, s := range j.seats {
		used = max(used, s.Host+1)
	}
	if j.spec.elastic() { // the rest may follow
		used = len(j.spec.Hosts)
	}
	var names []string
	for _, h := range j.spec.Hosts[:used] {
		if !j.plainlyLocal(h.Name) && !slices.Contains(names, h.Name) {
			names = append(names, h.Name)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		name  string
		local bool
	}
	found := make(chan answer, len(names))
	room := make(chan struct{}, atOnce)
	for _, name := range names {
		go func() {
			room <- struct{}{}
			found <- answer{name, j.meansThis(ctx, name)}
			<-room
		}()
	}
	left := slices.Clone(names)
	take := func(a answer) {
		j.here[a.name] = a.local
		left = slices.DeleteFunc(left, func(n string) bool { return n == a.name })
	}
	defer func() {
		cancel()
		for len(left) > 0 {
			take(<-found)
		}
	}()
	tick := time.NewTicker(firstWord / 4)
	defer tick.Stop()
	var patience patience
	for len(left) > 0 {
		select {
		case a := <-found:
			take(a)
		case now := <-tick.C:
			if patience.due(now) {
				j.event(&event.Delay{Text: "looking up the name of host " + list(left), Over: now.Sub(patience.began)})
			}
		case s := <-j.spec.Signals:
			if err := j.early(s, "while host names were being looked up"); err != nil {
				return err
			}
		case <-ctx.Done():
			return fault(1, "stopped while host names were being looked up")
		}
	}
	return nil
}

// isLocal says whether a host name means this machine, by forward look-up only.
func (j *job) isLocal(name string) bool {
	if j.plainlyLocal(name) {
		return true
	}
	if local, known := j.here[name]; known {
		return local
	}
	return j.meansThis(context.Background(), name)
}

// plainlyLocal says so of names that need not be looked up.
func (j *job) plainlyLocal(name string) bool {
	return name == "localhost" || name == j.spec.LocalName || name == "127.0.0.1" || name == "::1"
}

func (j *job) meansThis(ctx context.Context, name string) bool {
	if j.spec.IsLocal != nil {
		return j.spec.IsLocal(name)
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
