package storage

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// BenchmarkLatency reads ranges of a MiB, 16 at a time, from a server that thinks for 50 ms before each: what one
// waits for most of the time in a cloud.
func BenchmarkLatency(b *testing.B) {
	const mib, files = 1 << 20, 64
	data := make([]byte, mib)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", strconv.Itoa(files*mib))
			w.Header().Set("Accept-Ranges", "bytes")
			return
		}
		<-time.After(50 * time.Millisecond)
		w.Header().Set("Content-Range", "bytes "+r.Header.Get("Range")[6:]+"/"+strconv.Itoa(files*mib))
		w.Header().Set("Content-Length", strconv.Itoa(mib))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data)
	}))
	defer server.Close()
	ctx := context.Background()
	s, object := NewWeb(), Object{Name: server.URL + "/t", Size: files * mib}
	b.SetBytes(files * mib)
	for b.Loop() {
		var readers sync.WaitGroup
		next := make(chan int64)
		for range 16 {
			readers.Go(func() {
				p := make([]byte, mib)
				for at := range next {
					if err := s.ReadAt(ctx, object, p, at); err != nil {
						b.Error(err)
					}
				}
			})
		}
		for i := range int64(files) {
			next <- i * mib
		}
		close(next)
		readers.Wait()
	}
}
