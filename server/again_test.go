package server

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// failing is a file of outputs/ that cannot be had some times.
func failing(fails int, why error) *backend.Artifact {
	return &backend.Artifact{Path: "model", Open: func(context.Context) (io.ReadCloser, error) {
		if fails--; fails >= 0 {
			return nil, why
		}
		return io.NopCloser(strings.NewReader("weights")), nil
	}}
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
		f, file := &follower{Server: &Server{store: st}, missed: map[string]int{}}, failing(c.fails, c.why)
		f.ctx, f.attempt = t.Context(), client.Attempt{Number: 1}
		var b *batch
		tries := 0
		for b == nil || b.later != nil {
			b = &batch{}
			tries++
			f.sort(b, &backend.Record{N: 7, At: time.Now(), Artifact: file})
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

// TestASilentNodeIsNotWaitedForTwice: of one of which nothing comes no more is asked, which the job's story says once;
// and which files it has is not asked for again where all the time there is was given to that.
func TestASilentNodeIsNotWaitedForTwice(t *testing.T) {
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s := &Server{store: st, silence: 20 * time.Millisecond}
	f := &follower{Server: s, missed: map[string]int{}, silent: map[string]bool{}}
	f.ctx, f.attempt = t.Context(), client.Attempt{Number: 1}
	asked := 0
	file := &backend.Artifact{Path: "model", Open: func(ctx context.Context) (io.ReadCloser, error) {
		asked++
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write([]byte("wei"))
			<-ctx.Done()
			w.CloseWithError(ctx.Err())
		}()
		return r, nil
	}}
	late := &backend.Missing{Late: true, Err: context.DeadlineExceeded}
	b := &batch{others: []*backend.Record{
		{At: time.Now(), From: "far", Artifact: file},
		{At: time.Now(), From: "far", Artifact: file},
		{At: time.Now(), From: "near", Artifact: failing(0, nil)},
		{At: time.Now(), From: "deep", Missing: late},
	}}
	if err := f.elsewhere(b); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, h := range b.happened {
		told = append(told, h.Text)
	}
	if asked != 1 || len(b.artifacts) != 1 || len(told) != 2 ||
		!strings.Contains(told[0], "outputs/model on node far, and what it has beside, could not be kept: nothing has come of it") ||
		!strings.Contains(told[1], "outputs/* on node deep could not be kept: nothing has come of it") {
		t.Errorf("it was asked %d times, %d are kept, and it is told %q", asked, len(b.artifacts), told)
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
		if shorter(admit(p, store.HashOf(text)), &made); !made.Expires.Equal(expires) {
			t.Errorf("of a token until %v a session makes one until %v", expires, made.Expires)
		}
	}
}
