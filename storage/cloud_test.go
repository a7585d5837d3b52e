package storage

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lakeServer speaks as Azure's data lake does, as far as this package asks.
type lakeServer struct {
	mu     sync.Mutex
	files  map[string][]byte // "fs/path"
	token  string
	faults []func(http.ResponseWriter, *http.Request)
}

func (l *lakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) > 0 {
		fault := l.faults[0]
		l.faults = l.faults[1:]
		if fault != nil {
			fault(w, r)
			return
		}
	}
	if r.Header.Get("Authorization") != "Bearer "+l.token || r.Header.Get("X-Ms-Version") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	q, name := r.URL.Query(), strings.TrimPrefix(r.URL.Path, "/")
	content, there := l.files[name]
	folder := slices.ContainsFunc(l.names(), func(n string) bool { return strings.HasPrefix(n, name+"/") })
	switch {
	case q.Get("resource") == "filesystem":
		l.list(w, name, q.Get("directory"), q.Get("continuation"))
	case r.Method == http.MethodPut && r.Header.Get("X-Ms-Rename-Source") != "":
		from, _ := url.PathUnescape(strings.TrimPrefix(r.Header.Get("X-Ms-Rename-Source"), "/"))
		l.files[name] = l.files[from]
		delete(l.files, from)
	case r.Method == http.MethodPut && q.Get("resource") == "file":
		l.files[name] = []byte{}
	case r.Method == http.MethodPatch && q.Get("action") == "append":
		if q.Get("position") != strconv.Itoa(len(content)) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		l.files[name] = append(content, body...)
	case r.Method == http.MethodPatch:
	case r.Method == http.MethodDelete:
		delete(l.files, name)
	case !there && folder && r.Method == http.MethodHead:
		w.Header().Set("X-Ms-Resource-Type", "directory")
	case !there:
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Header().Set("ETag", strconv.Quote(fmt.Sprintf("0x%x", len(content))))
		w.Header().Set("X-Ms-Resource-Type", "file")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

func (l *lakeServer) names() []string {
	var all []string
	for name := range l.files {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// list answers some paths at a time, folders among them.
func (l *lakeServer) list(w http.ResponseWriter, filesystem, folder, from string) {
	var all []map[string]string
	for _, name := range l.names() {
		below, found := strings.CutPrefix(name, filesystem+"/")
		if !found || folder != "" && !strings.HasPrefix(below, folder+"/") {
			continue
		}
		n := len(l.files[name])
		all = append(all, map[string]string{"name": below, "contentLength": strconv.Itoa(n), "etag": fmt.Sprintf("0x%x", n)})
	}
	all = append(all, map[string]string{"name": folder + "/sub", "isDirectory": "true", "contentLength": "0"})
	begin, _ := strconv.Atoi(from)
	end := min(begin+700, len(all))
	if end < len(all) {
		w.Header().Set("X-Ms-Continuation", strconv.Itoa(end))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"paths": all[begin:end]})
}

func TestADLS(t *testing.T) {
	ctx := context.Background()
	l := &lakeServer{files: map[string][]byte{"fs/t/_delta_log/0.json": nil}, token: "secret"}
	for i := range 2000 {
		l.files[fmt.Sprintf("fs/t/day=%d/part-%04d.parquet", i%3, i)] = []byte("0123456789")[:1+i%10]
	}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	const root = "abfss://fs@account.dfs.core.windows.net/"
	open := func(pairs ...string) *ADLS {
		t.Helper()
		s, err := Find(root+"t", env(append(pairs, "HORA_ADLS_ENDPOINT", server.URL)...))
		if err != nil {
			t.Fatal(err)
		}
		a := s.(*ADLS)
		a.web.pause, a.web.giveUp = time.Millisecond, 2*time.Second
		t.Cleanup(a.web.client.CloseIdleConnections)
		return a
	}
	a := open("HORA_ADLS_TOKEN", "secret")
	all, err := a.List(ctx, root+"t")
	if err != nil || len(all) != 2000 || all[0].Name != root+"t/day=0/part-0000.parquet" || all[0].Tag != `"0x1"` {
		t.Fatalf("%d files, %v", len(all), err)
	}
	p := make([]byte, 3)
	if err := a.ReadAt(ctx, all[9], p, 5); err != nil || string(p) != "567" {
		t.Errorf("%q of %+v: %v", p, all[9], err)
	}
	name := root + "new dir/a+b&ö.bin"
	if err := a.Put(ctx, name, []byte("hello world")); err != nil {
		t.Fatal(err)
	}
	o, err := a.Stat(ctx, name)
	if err != nil || o.Size != 11 || len(l.files) != 2002 {
		t.Errorf("%+v %v, %d files", o, err, len(l.files))
	}
	if one, err := a.List(ctx, name); err != nil || len(one) != 1 || one[0] != o {
		t.Errorf("%v %v", one, err)
	}
	o.Tag = `"0xff"`
	if err := a.ReadAt(ctx, o, p, 0); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	for _, none := range []string{root + "none", root + "t/day=0/part-9999.parquet"} {
		if _, err := a.List(ctx, none); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	if _, err := open("HORA_ADLS_TOKEN", "wrong").List(ctx, root+"t"); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
	for says, bad := range map[string]string{"names no filesystem and account": "abfss://fs/t", "it is a folder": root + "t"} {
		if _, err := a.Stat(ctx, bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := NewADLS(env()); err == nil || !strings.Contains(err.Error(), "set HORA_ADLS_TOKEN, or AZURE_TENANT_ID") {
		t.Error(err)
	}
}

// TestADLSFaults: what goes by itself is asked for again, what does not is said, and a
// file that cannot be written whole leaves nothing.
func TestADLSFaults(t *testing.T) {
	ctx := context.Background()
	const name = "abfss://fs@account.dfs.core.windows.net/t/a"
	l := &lakeServer{files: map[string][]byte{"fs/t/a": []byte("0123456789")}, token: "secret"}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	a, err := NewADLS(env("HORA_ADLS_TOKEN", "secret", "HORA_ADLS_ENDPOINT", server.URL))
	if err != nil {
		t.Fatal(err)
	}
	a.web.pause, a.web.giveUp = time.Millisecond, 2*time.Second
	t.Cleanup(a.web.client.CloseIdleConnections)
	o, err := a.Stat(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 3)
	for _, c := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request)
		says  string
	}{
		{"busy", status(503), ""},
		{"401", status(401), "access is denied"},
		{"403", status(403), "access is denied"},
		{"404", status(404), "there is no such file"},
		{"short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-7/10")
			w.Header().Set("Content-Length", "3")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write([]byte("5"))
			panic(http.ErrAbortHandler)
		}, ""},
	} {
		l.mu.Lock()
		l.faults = append(l.faults, c.fault)
		l.mu.Unlock()
		clear(p)
		err := a.ReadAt(ctx, o, p, 5)
		wrong := err == nil || !strings.Contains(err.Error(), c.says)
		if c.says == "" {
			wrong = err != nil || string(p) != "567"
		}
		if wrong {
			t.Errorf("%s: %q %v", c.name, p, err)
		}
	}
	l.mu.Lock()
	l.faults = []func(http.ResponseWriter, *http.Request){nil, status(403)} // the append
	l.mu.Unlock()
	if err := a.Put(ctx, name+"b", []byte("x")); !errors.Is(err, ErrDenied) || len(l.files) != 1 {
		t.Errorf("%v, %d files", err, len(l.files))
	}
}

// TestSlow: a server that does not answer ends with a sentence in bounded time.
func TestSlow(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	a, err := NewADLS(env("HORA_ADLS_TOKEN", "x", "HORA_ADLS_ENDPOINT", server.URL))
	if err != nil {
		t.Fatal(err)
	}
	a.web.giveUp = 50 * time.Millisecond
	if _, err := a.List(context.Background(), "abfss://fs@a/t"); err == nil || !strings.Contains(err.Error(), "see whether the server is well") {
		t.Error(err)
	}
}

// tokens answers tokens to who proves a key or a secret, a new one each time.
type tokens struct {
	key   *rsa.PublicKey
	given atomic.Int32
	url   string
}

func (s *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ok := r.FormValue("client_id") == "id" && r.FormValue("client_secret") == "hush"
	if parts := strings.Split(r.FormValue("assertion"), "."); s.key != nil && len(parts) == 3 {
		sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
		text, _ := base64.RawURLEncoding.DecodeString(parts[1])
		var claims struct {
			Iss, Aud string
			Exp      int64
		}
		_ = json.Unmarshal(text, &claims)
		ok = rsa.VerifyPKCS1v15(s.key, crypto.SHA256, sum[:], signature) == nil
		ok = ok && claims.Iss == "me@example" && claims.Aud == s.url+"/token"
	}
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint("token", s.given.Add(1)), "expires_in": 3600})
}

// newTokens starts a server of tokens, and answers the file of a key that it knows.
func newTokens(t *testing.T) (*tokens, string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s := &tokens{key: &key.PublicKey}
	auth := httptest.NewServer(s)
	t.Cleanup(auth.Close)
	s.url = auth.URL
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.json")
	text, _ := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "me@example", "token_uri": auth.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	write(t, file, string(text))
	return s, file
}

func TestGCS(t *testing.T) {
	ctx := context.Background()
	s, file := newTokens(t)
	b := &bucket{keys: map[string][]byte{"t/a.parquet": []byte("0123456789"), "t/_x": nil}}
	var want atomic.Value
	want.Store("Bearer token1")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != want.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		b.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	find := func(pairs ...string) *S3 {
		t.Helper()
		g, err := Find("gs://data/t", env(append(pairs, "HORA_GCS_ENDPOINT", server.URL)...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.(*S3).web.client.CloseIdleConnections)
		return g.(*S3)
	}
	g := find("GOOGLE_APPLICATION_CREDENTIALS", file)
	all, err := g.List(ctx, "gs://data/t")
	if err != nil || len(all) != 1 || all[0].Name != "gs://data/t/a.parquet" || s.given.Load() != 1 {
		t.Fatalf("%v %v, %d tokens", all, err, s.given.Load())
	}
	p := make([]byte, 2)
	if err := g.ReadAt(ctx, all[0], p, 3); err != nil || string(p) != "34" {
		t.Errorf("%q %v", p, err)
	}
	if err := g.Put(ctx, "gs://data/t/b", []byte("x")); err != nil || string(b.keys["t/b"]) != "x" {
		t.Error(err)
	}
	g2 := find("HORA_GCS_TOKEN", "wrong")
	if _, err := g2.Stat(ctx, all[0].Name); !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
}

// TestTokens: a token is asked for again a minute before it ends, of Google with a signed
// key and of Azure with a secret; and what is no key is said.
func TestTokens(t *testing.T) {
	ctx := context.Background()
	s, file := newTokens(t)
	auth := s.url
	b2 := &bearer{web: NewWeb(), now: time.Now, ask: mustAccount(t, file)}
	at := time.Now()
	b2.now = func() time.Time { return at }
	for _, want := range []string{"token1", "token1", "token2"} { // it is asked for again a minute before it ends
		got, err := b2.get(ctx)
		if err != nil || got != want {
			t.Errorf("%q %v, want %q", got, err, want)
		}
		at = at.Add(59*time.Minute - time.Second)
		if want == "token1" {
			at = at.Add(-29 * time.Minute)
		}
	}
	azure, err := azureBearer(env("AZURE_TENANT_ID", "me", "AZURE_CLIENT_ID", "id", "AZURE_CLIENT_SECRET", "hush", "AZURE_AUTHORITY_HOST", auth))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := azure.get(ctx); err != nil || !strings.HasPrefix(got, "token") {
		t.Error(got, err)
	}
	denied, err := azureBearer(env("AZURE_TENANT_ID", "me", "AZURE_CLIENT_ID", "id", "AZURE_CLIENT_SECRET", "loud", "AZURE_AUTHORITY_HOST", auth))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := denied.get(ctx); !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "loud") {
		t.Error(err)
	}
	for says, bad := range map[string]string{"it is no JSON": "x", `of the type "x"`: `{"type":"x"}`, "its private_key is none": `{"type":"service_account"}`} {
		write(t, file, bad)
		if _, err := NewGCS(env("GOOGLE_APPLICATION_CREDENTIALS", file)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func mustAccount(t *testing.T, file string) func() (string, url.Values, error) {
	t.Helper()
	ask, err := readAccount(file, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return ask
}

// TestShelf: what is kept comes back whole or not at all, and never more than is allowed.
func TestShelf(t *testing.T) {
	dir := t.TempDir()
	s := NewShelf(dir, 100_000)
	text := bytes.Repeat([]byte("0123456789"), 100)
	for i := range 300 {
		s.Put(fmt.Sprint(i), text)
	}
	size, kept := int64(0), 0
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, _ error) error {
		if info, err := d.Info(); err == nil && !d.IsDir() {
			size += info.Size()
			kept++
		}
		return nil
	})
	if size > 100_000 || kept < 50 {
		t.Errorf("%d files with %d bytes are kept", kept, size)
	}
	other := NewShelf(dir, 100_000) // another process
	if got, ok := other.Get("299"); !ok || !bytes.Equal(got, text) {
		t.Error("the last is not there")
	}
	name, _ := s.name("299")
	whole, _ := os.ReadFile(name)
	for _, bad := range [][]byte{whole[:len(whole)-1], append([]byte("x"), whole[1:]...), nil} {
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Get("299"); ok {
			t.Error("damage is handed out")
		}
		if _, err := os.Stat(name); err == nil {
			t.Error("damage stays")
		}
	}
	if s.Why() != "" {
		t.Error(s.Why())
	}
	file := filepath.Join(dir, "file")
	write(t, file, "")
	no := NewShelf(file, 1000)
	no.Put("x", []byte("y"))
	if _, ok := no.Get("x"); ok || !strings.Contains(no.Why(), "nothing can be kept in the data's cache "+file) {
		t.Error(no.Why())
	}
	no.why = &os.PathError{Op: "write", Path: file, Err: syscall.ENOSPC}
	if !strings.Contains(no.Why(), "is full, so files are fetched again and again; make room") {
		t.Error(no.Why())
	}
	var none *Shelf
	none.Put("x", nil)
	if _, ok := none.Get("x"); ok || none.Why() != "" || NewCached(Local{}, nil) != (Local{}) {
		t.Error("there is no shelf")
	}
}

// TestCached: a range is fetched once, by whichever process of the host, and again when
// the file is another.
func TestCached(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	web, url, asked := server(t, bytes.Repeat([]byte("0123456789"), 100))
	read := func(tag string) (string, error) {
		p := make([]byte, 4)
		err := NewCached(web, NewShelf(dir, 1<<20)).ReadAt(ctx, Object{url, 1000, tag}, p, 3)
		return string(p), err
	}
	for range 3 {
		if got, err := read(`"1"`); err != nil || got != "3456" {
			t.Errorf("%q %v", got, err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("it was fetched %d times", asked.Load())
	}
	if _, err := read(`"2"`); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	for range 2 {
		if _, err := read(""); err != nil {
			t.Error(err)
		}
	}
	if asked.Load() != 4 {
		t.Errorf("what nobody could tell apart was kept: asked %d times", asked.Load())
	}
}
