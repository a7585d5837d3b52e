package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"hora/server/client"
)

// What is refused is written down, and nobody may fill the disk by being refused: the first of its kind is written at
// once, those like it within some time are one more record with their number, and of how many kinds there may be at a
// time is bounded; what is beyond that counts as one kind.

const (
	foldFor       = 5 * time.Minute
	kindsStranger = 8   // of callers without a token
	kindsKnown    = 200 // of the others
)

// kind is what refusals have in common that are one record.
type kind struct {
	who, address, what, target string
	status                     int
}

// others stands for all kinds that are too many; who is empty where they have tokens.
func others(who string) kind { return kind{who: who} }

// says tells of those that are one record.
func (k kind) says(count int, since time.Time) string {
	like := "like it"
	if k.status == 0 {
		like = "of further kinds"
	}
	return fmt.Sprintf("the last of %d %s since %s UTC", count, like, since.Format(time.TimeOnly))
}

// refusals are those of late. The zero value is ready.
type refusals struct {
	mu   sync.Mutex // guards what follows
	all  map[kind]*folded
	here map[bool]int // how many kinds are of strangers, and how many are not
}

// folded are those of a kind that are not written down yet.
type folded struct {
	count int
	last  client.Deed
}

func kindOf(d *client.Deed) kind {
	k := kind{d.Who, d.Address, d.What, d.Target, d.Status}
	if d.Who == nobody { // who takes what path and method they like
		k.target = ""
		if d.What != joining {
			k.what = ""
		}
	}
	return k
}

// note writes a refusal down, or counts it.
func (f *refusals) note(s *Server, d client.Deed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, stranger := kindOf(&d), d.Who == nobody
	if f.all == nil {
		f.all, f.here = map[kind]*folded{}, map[bool]int{}
	}
	if f.all[k] == nil && f.here[stranger] >= map[bool]int{true: kindsStranger, false: kindsKnown}[stranger] {
		k = others(d.Who)
		if !stranger {
			k = others("")
		}
	}
	d.At = time.Now().UTC()
	if one := f.all[k]; one != nil {
		one.count, one.last = one.count+1, d
		return
	}
	f.all[k] = &folded{}
	f.here[stranger]++
	s.wg.Go(func() {
		f.write(s, d)
		select {
		case <-time.After(foldFor):
		case <-s.ctx.Done():
		}
		f.mu.Lock()
		one := f.all[k]
		delete(f.all, k)
		f.here[stranger]--
		f.mu.Unlock()
		if one.count > 0 {
			one.last.Text = k.says(one.count, d.At)
			f.write(s, one.last)
		}
	})
}

func (f *refusals) write(s *Server, d client.Deed) {
	if err := s.store.Note(context.WithoutCancel(s.ctx), d); err != nil && s.ctx.Err() == nil {
		s.log.Warn("record what was refused", "error", err)
	}
}
