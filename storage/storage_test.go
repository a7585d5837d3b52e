package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLocal(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	for _, name := range []string{"b.parquet", "a/2.parquet", "a/day=3/_x=1/3.parquet", "_SUCCESS", ".a.crc", "_delta_log/0.json", "a/.tmp/4"} {
		write(t, filepath.Join(dir, name), name)
	}
	all, err := Local{}.List(ctx, dir)
	var names []string
	for _, o := range all {
		names = append(names, strings.TrimPrefix(o.Name, dir+"/"))
	}
	if got := strings.Join(names, " "); err != nil || got != "a/2.parquet a/day=3/_x=1/3.parquet b.parquet" {
		t.Errorf("%s %v", got, err)
	}
	if some, err := (Local{}).List(ctx, dir+"/*.parquet"); err != nil || len(some) != 1 {
		t.Errorf("%v %v", some, err)
	}
	for _, none := range []string{dir + "/none", dir + "/none*"} {
		if _, err := (Local{}).List(ctx, none); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
	}
	name := filepath.Join(dir, "new")
	if err := (Local{}).Put(ctx, name, []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	o, err := Local{}.Stat(ctx, name)
	p := make([]byte, 4)
	if err != nil || o.Size != 10 || (Local{}).ReadAt(ctx, o, p, 3) != nil || string(p) != "3456" {
		t.Errorf("%+v %s %v", o, p, err)
	}
	if err := (Local{}).ReadAt(ctx, o, p, 8); err == nil || !strings.Contains(err.Error(), "4 bytes at 8 are asked for and the file has 10") {
		t.Errorf("%v", err)
	}
	write(t, name, "other than before")
	if err := (Local{}).ReadAt(ctx, o, p, 0); !errors.Is(err, ErrChanged) {
		t.Errorf("a file that changed: %v", err)
	}
	if left, _ := filepath.Glob(dir + "/.new*"); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
	if _, err := Find("ftp://x/y", nil); err == nil {
		t.Error("there is no storage ftp")
	}
}

// server is a web server whose first answers are faults.
func server(t *testing.T, content []byte, faults ...func(http.ResponseWriter, *http.Request)) (*Web, string,
	*atomic.Int32,
) {
	t.Helper()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if n := int(asked.Add(1)); n <= len(faults) && r.Method == http.MethodGet {
			faults[n-1](w, r)
			return
		}
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(s.Close)
	web := NewWeb()
	web.pause, web.giveUp = time.Millisecond, 3*time.Second
	t.Cleanup(web.client.CloseIdleConnections)
	return web, s.URL + "/x", &asked
}

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestWeb(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 5-104/10000")
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(content[5:45])
		panic(http.ErrAbortHandler)
	}
	other := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"2"`)
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(content))
	}
	whole := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }
	elsewhere := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 6-105/10000")
		w.WriteHeader(http.StatusPartialContent)
	}
	for _, c := range []struct {
		name   string
		faults []func(http.ResponseWriter, *http.Request)
		says   string
	}{
		{"well", nil, ""},
		{"busy", []func(http.ResponseWriter, *http.Request){status(503), status(429), status(500)}, ""},
		{"cut", []func(http.ResponseWriter, *http.Request){cut}, ""},
		{"none", []func(http.ResponseWriter, *http.Request){status(404)}, "there is no such file; see whether"},
		{"denied", []func(http.ResponseWriter, *http.Request){status(403)}, "access is denied; see whether"},
		{"changed", []func(http.ResponseWriter, *http.Request){other}, "has changed since it was opened; open the data again"},
		{"no ranges", []func(http.ResponseWriter, *http.Request){whole}, "it must know ranges"},
		{"another range", []func(http.ResponseWriter, *http.Request){elsewhere}, "bytes 6-105/10000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			web, url, _ := server(t, content, c.faults...)
			p := make([]byte, 100)
			err := web.ReadAt(context.Background(), Object{url, 10000, `"1"`}, p, 5)
			if c.says == "" && (err != nil || !bytes.Equal(p, content[5:105])) {
				t.Errorf("%v", err)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	web, url, _ := server(t, content)
	if o, err := web.Stat(context.Background(), url); err != nil || o.Size != 10000 || o.Tag != `"1"` {
		t.Errorf("%+v %v", o, err)
	}
	forever := make([]func(http.ResponseWriter, *http.Request), 1000)
	for i := range forever {
		forever[i] = status(503)
	}
	web, url, asked := server(t, content, forever...)
	web.giveUp = 50 * time.Millisecond
	if err := web.ReadAt(context.Background(), Object{url, 10000, `"1"`}, make([]byte, 4), 0); err == nil ||
		!strings.Contains(err.Error(), "503") || asked.Load() < 3 {
		t.Errorf("%v after %d", err, asked.Load())
	}
}

// TestLongRange: a range that takes longer than a server gets is read as long as it comes, and no longer.
func TestLongRange(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	dribble := func(most int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(content)-1, len(content)))
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			w.WriteHeader(http.StatusPartialContent)
			for part := range slices.Chunk(content[:most], enough/2) {
				_, _ = w.Write(part)
				w.(http.Flusher).Flush()
				<-time.After(100 * time.Millisecond)
			}
			<-r.Context().Done()
		}
	}
	for most, says := range map[int]string{len(content): "", enough + enough/2: "nothing comes from the server"} {
		web, url, _ := server(t, content, dribble(most))
		web.giveUp = 400 * time.Millisecond
		p := make([]byte, len(content))
		err := web.ReadAt(context.Background(), Object{url, int64(len(content)), `"1"`}, p, 0)
		if says == "" && (err != nil || !bytes.Equal(p, content)) {
			t.Errorf("it was coming: %v", err)
		}
		if says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestPatterns: a pattern stands for what lies below the folders that fit, and a name that is there is none.
func TestPatterns(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"year=2023/a.parquet", "year=2024/b.parquet", "_old/c.parquet", "run[1]/d.parquet", "run1/e.parquet"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), "x")
	}
	for pattern, want := range map[string]string{
		"year=*": "year=2023/a.parquet year=2024/b.parquet", "*": "run1/e.parquet run[1]/d.parquet year=2023/a.parquet year=2024/b.parquet",
		"run[1]": "run[1]/d.parquet", "run[12]": "run1/e.parquet", "*/*4": "",
	} {
		all, err := (Local{}).List(context.Background(), filepath.Join(dir, pattern))
		var names []string
		for _, o := range all {
			names = append(names, strings.TrimPrefix(o.Name, dir+"/"))
		}
		if got := strings.Join(names, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s (%v), want %s", pattern, got, err, want)
		}
	}
}
