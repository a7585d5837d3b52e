package demo

import (
	"slices"
)

// Point is the state of a training after one epoch, of all ranks together.
type Point struct {
	Epoch    int
	Loss     float64
	Accuracy float64
	Seconds  float64 // since training began, of the slowest rank
	Rate     float64 // samples per second of all ranks, since training began
	Talk     float64 // share of a step spent in communication, 0..1
	Wait     float64 // share of a step spent waiting for the later rank, 0..1
}

// Progress collects the workers' reports. It is fed by one goroutine.
type Progress struct {
	Size, Epochs int
	Links        []string // what bytes went over, of any rank
	Points       []Point
	PerRank      [][]Report // epochs reported by each rank
	Done         []Report   // by rank; Kind is empty until it has come
	notes        []string
}

// NewProgress expects reports of size ranks.
func NewProgress(size int) *Progress {
	return &Progress{Size: size, PerRank: make([][]Report, size), Done: make([]Report, size)}
}

// news is what a report adds for somebody who watches.
type news int

const (
	nothingNew news = iota
	newNote         // that no rank has made before
	newEpoch        // all ranks have now reported one more, or some
)

// Add takes in a report.
func (p *Progress) Add(r Report) news {
	if r.Rank < 0 || r.Rank >= p.Size {
		return nothingNew
	}
	p.Epochs = r.Epochs
	switch r.Kind {
	case Note:
		if !slices.Contains(p.notes, r.Note) {
			p.notes = append(p.notes, r.Note)
			return newNote
		}
	case Epoch:
		if r.Epoch <= len(p.PerRank[r.Rank]) {
			return nothingNew // done again after a loss
		}
		p.fill(r.Rank, r.Epoch-1)
		p.PerRank[r.Rank] = append(p.PerRank[r.Rank], r)
		added := nothingNew
		for n := len(p.Points); p.complete(n); n++ {
			p.Points, added = append(p.Points, p.point(n)), newEpoch
		}
		return added
	case Done:
		p.Done[r.Rank] = r
		for _, link := range r.Links {
			if !slices.Contains(p.Links, link) {
				p.Links = append(p.Links, link)
			}
		}
		slices.Sort(p.Links)
	}
	return nothingNew
}

// fill has another rank's report stand for an epoch that a rank has done and was killed before it could say so.
func (p *Progress) fill(rank, epochs int) {
	for n := len(p.PerRank[rank]); n < epochs; n++ {
		for _, reports := range p.PerRank {
			if len(reports) > n {
				r := reports[n]
				r.Rank = rank
				p.PerRank[rank] = append(p.PerRank[rank], r)
				break
			}
		}
	}
}

// complete reports whether all ranks have told how epoch n, counted from 0, went.
func (p *Progress) complete(n int) bool {
	for _, reports := range p.PerRank {
		if len(reports) <= n {
			return false
		}
	}
	return true
}

func (p *Progress) point(n int) Point {
	var pt Point
	var samples int
	var talk, wait, all float64
	for _, reports := range p.PerRank {
		r := reports[n]
		pt.Epoch, pt.Loss, pt.Accuracy = r.Epoch, r.Loss, r.Accuracy
		pt.Seconds = max(pt.Seconds, r.Seconds)
		samples += r.Samples
		talk, wait, all = talk+r.Talk, wait+r.Wait, all+r.Busy+r.Talk+r.Wait
	}
	if pt.Seconds > 0 {
		pt.Rate = float64(samples) / pt.Seconds
	}
	if all > 0 {
		pt.Talk, pt.Wait = talk/all, wait/all
	}
	return pt
}

// Last is the state after the last epoch that all ranks have done.
func (p *Progress) Last() Point {
	if len(p.Points) == 0 {
		return Point{}
	}
	return p.Points[len(p.Points)-1]
}

// Agree reports whether every rank is done and found all digests equal, and the front
// end finds so too.
func (p *Progress) Agree() bool {
	for _, r := range p.Done {
		if !r.Agree || r.Digest != p.Done[0].Digest {
			return false
		}
	}
	return true
}
