package server

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"hora/server/client"
	"hora/server/fleet"
	"hora/server/node"
	"hora/server/store"
)

// leavings are those of an attempt whose one file cannot be had some times.
type leavings struct {
	Leavings
	fails int
	why   error
}

func (l *leavings) Output(fleet.Ref, string) (io.ReadCloser, error) {
	if l.fails--; l.fails >= 0 {
		return nil, l.why
	}
	return io.NopCloser(strings.NewReader("weights")), nil
}

// TestAFileThatCannotBeHadComesAgain: what a job has left is asked for again, with all that came with it; at last its
// story says what is not there. A file that is gone is no news.
func TestAFileThatCannotBeHadComesAgain(t *testing.T) {
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, c := range []struct {
		why         error
		fails       int
		tries, kept int
		told        string
	}{
		{errors.New("the link broke"), 2, 3, 1, ""},
		{errors.New("the link broke"), 100, fetchTries, 0, "outputs/model could not be kept: the link broke"},
		{os.ErrNotExist, 100, 1, 0, ""},
		{store.ErrFull, 3 * fetchTries, 3*fetchTries + 1, 1, ""},
	} {
		s := &Server{store: st, left: &leavings{fails: c.fails, why: c.why}}
		f := &follower{Server: s, missed: map[string]int{}}
		f.ctx, f.attempt = t.Context(), client.Attempt{Number: 1}
		var b *batch
		tries := 0
		for b == nil || b.later != nil {
			b = &batch{}
			tries++
			f.sort(b, &node.Record{N: 7, At: time.Now(), Artifact: &node.Artifact{Path: "model"}})
		}
		told := ""
		for _, h := range b.happened {
			told += h.Text
		}
		if tries != c.tries || len(b.artifacts) != c.kept || told != c.told {
			t.Errorf("%v, %d times: %d tries, %d kept, %q", c.why, c.fails, tries, len(b.artifacts), told)
		}
	}
}

// TestWhatASessionMakesLasts as long as the token that it was made from, and not as the session.
func TestWhatASessionMakesLasts(t *testing.T) {
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s := &Server{store: st}
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for _, expires := range []time.Time{soon, {}} {
		token, _, err := s.addPass(t.Context(), &store.Pass{Pass: client.Pass{User: "max", Expires: expires}})
		if err != nil {
			t.Fatal(err)
		}
		session := client.Pass{User: "max", Expires: time.Now().Add(sessionTime)}
		text, _, err := s.addPass(t.Context(), &store.Pass{Pass: session, Parent: store.HashOf(token)})
		if err != nil {
			t.Fatal(err)
		}
		p, found, err := st.Pass(context.Background(), text, "")
		if err != nil || !found {
			t.Fatal(found, err)
		}
		made := store.Pass{}
		if err := narrower(admit(p, store.HashOf(text)), &made); err != nil || !made.Expires.Equal(expires) {
			t.Errorf("of a token until %v a session makes one until %v, %v", expires, made.Expires, err)
		}
	}
}
