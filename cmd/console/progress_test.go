package console

import (
	"strings"
	"testing"
	"time"
)

// TestProgress: nothing is said of what is quick; what takes longer has a line at once, and one each time after that,
// which a terminal writes over.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		live bool
		want string
	}{
		{false, "hora: sending files: 1 of 3\nhora: sending files: 2 of 3\n"},
		{true, "\r\x1b[Khora: sending files: 1 of 3\r\x1b[Khora: sending files: 2 of 3\r\x1b[K"},
	} {
		p := &Progress{what: "hora: sending files", end: make(chan struct{}), told: make(chan struct{})}
		p.Of(3)
		p.Count()
		out, first, tick := &lines{said: make(chan struct{}, 9)}, make(chan time.Time, 1), make(chan time.Time, 1)
		first <- time.Time{}
		go func() {
			defer close(p.told)
			p.tell(out, c.live, first, tick)
		}()
		<-out.said
		p.Count()
		tick <- time.Time{}
		<-out.said
		p.Done()
		if out.String() != c.want {
			t.Errorf("it said %q, want %q", out.String(), c.want)
		}
	}
	var quick strings.Builder
	p := NewProgress(&quick, "hora: reading")
	p.Done()
	if quick.Len() > 0 {
		t.Errorf("of what was quick it said %q", quick.String())
	}
}

// lines tells of each write.
type lines struct {
	strings.Builder
	said chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	n, err := l.Builder.Write(b)
	l.said <- struct{}{}
	return n, err
}
