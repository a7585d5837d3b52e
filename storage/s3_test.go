package storage

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

const (
	exampleID  = "AKIAIOSFODNN7EXAMPLE"
	exampleKey = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

// TestSignature: the signatures of the examples in Amazon's documentation of S3.
func TestSignature(t *testing.T) {
	s, err := NewS3(env("AWS_ACCESS_KEY_ID", exampleID, "AWS_SECRET_ACCESS_KEY", exampleKey))
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		method, url, body string
		header            http.Header
		want              string
	}{
		{"GET", "https://examplebucket.s3.amazonaws.com/test.txt", "", http.Header{"Range": {"bytes=0-9"}}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{
			"PUT", "https://examplebucket.s3.amazonaws.com/test%24file.text", "Welcome to Amazon S3.",
			http.Header{"Date": {"Fri, 24 May 2013 00:00:00 GMT"}, "X-Amz-Storage-Class": {"REDUCED_REDUNDANCY"}},
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		},
		{"GET", "https://examplebucket.s3.amazonaws.com/?lifecycle=", "", http.Header{}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "", http.Header{}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r, err := http.NewRequest(c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = c.header
		s.sign(r, []byte(c.body))
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+c.want) {
			t.Errorf("%s %s: %s", c.method, c.url, got)
		}
	}
}

// bucket is a server that speaks as S3 does, as far as this package asks.
type bucket struct {
	mu    sync.Mutex
	keys  map[string][]byte
	check *S3 // knows the same keys; nil: somebody else checks
}

// signed reports whether a request has the signature that it must.
func (b *bucket) signed(r *http.Request, body []byte) bool {
	if b.check == nil {
		return true
	}
	again := r.Clone(context.Background())
	again.URL.Host = r.Host
	again.Header = http.Header{}
	for _, name := range strings.Split(strings.TrimPrefix(strings.Split(r.Header.Get("Authorization"),
		",")[min(1, strings.Count(r.Header.Get("Authorization"), ","))], "SignedHeaders="), ";") {
		if v := r.Header.Values(name); len(v) > 0 {
			again.Header[http.CanonicalHeaderKey(name)] = v
		}
	}
	at, _ := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	b.check.now = func() time.Time { return at }
	b.check.sign(again, body)
	return again.Header.Get("Authorization") == r.Header.Get("Authorization")
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !b.signed(r, body) {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/data/")
	content, known := b.keys[key]
	switch {
	case key == "" && r.URL.Query().Get("list-type") == "2":
		b.list(w, r)
	case r.Method == http.MethodPut:
		b.keys[key] = body
	case !known:
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Header().Set("ETag", strconv.Quote(fmt.Sprint(len(content))))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// list answers a thousand keys at a time.
func (b *bucket) list(w http.ResponseWriter, r *http.Request) {
	var all []string
	for key := range b.keys {
		if strings.HasPrefix(key, r.URL.Query().Get("prefix")) {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	from, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("continuation-token"), "after/"))
	end := min(from+1000, len(all))
	type content struct {
		Key  string
		Size int
		ETag string
	}
	answer := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Contents              []content
		IsTruncated           bool
		NextContinuationToken string
	}{IsTruncated: end < len(all), NextContinuationToken: fmt.Sprintf("after/%d", end)}
	for _, key := range all[from:end] {
		answer.Contents = append(answer.Contents, content{
			key, len(b.keys[key]),
			strconv.Quote(fmt.Sprint(len(b.keys[key]))),
		})
	}
	_ = xml.NewEncoder(w).Encode(answer)
}

func TestS3(t *testing.T) {
	ctx := context.Background()
	lookup := []string{"AWS_ACCESS_KEY_ID", "id", "AWS_SECRET_ACCESS_KEY", "secret", "AWS_SESSION_TOKEN", "token", "AWS_REGION", "eu-west-1"}
	check, err := NewS3(env(lookup...))
	if err != nil {
		t.Fatal(err)
	}
	b := &bucket{keys: map[string][]byte{}, check: check}
	for i := range 2500 {
		b.keys[fmt.Sprintf("t/day=%d/part-%04d.parquet", i%3, i)] = []byte("0123456789")[:1+i%10]
	}
	b.keys["t/_SUCCESS"] = nil
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	open := func(pairs ...string) Store {
		t.Helper()
		s, err := Find("s3://data/t", env(append(pairs, "HORA_S3_ENDPOINT", server.URL)...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.(*S3).web.client.CloseIdleConnections)
		return s
	}
	s := open(lookup...)
	all, err := s.List(ctx, "s3://data/t")
	if err != nil || len(all) != 2500 || all[0].Name != "s3://data/t/day=0/part-0000.parquet" || all[0].Size != 1 {
		t.Fatalf("%d objects, %v", len(all), err)
	}
	if err := s.Put(ctx, "s3://data/new dir/a+b&ö.bin", []byte("hello world")); err != nil {
		t.Fatal(err)
	}
	o, err := s.Stat(ctx, "s3://data/new dir/a+b&ö.bin")
	p := make([]byte, 5)
	if err != nil || o.Size != 11 || s.ReadAt(ctx, o, p, 6) != nil || string(p) != "world" {
		t.Errorf("%+v %q %v", o, p, err)
	}
	if one, err := s.List(ctx, o.Name); err != nil || len(one) != 1 || one[0] != o {
		t.Errorf("%v %v", one, err)
	}
	o.Tag = `"12"`
	if err := s.ReadAt(ctx, o, p, 0); !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
	if _, err := s.List(ctx, "s3://data/none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	for _, wrong := range [][]string{nil, {"AWS_ACCESS_KEY_ID", "id", "AWS_SECRET_ACCESS_KEY", "other"}} {
		if _, err := open(wrong...).Stat(ctx, o.Name); !errors.Is(err, ErrDenied) {
			t.Errorf("keys %v: %v", wrong, err)
		}
	}
	file := filepath.Join(t.TempDir(), "credentials")
	write(t, file, "[default]\naws_access_key_id = x\n\n[job]\naws_access_key_id=id\naws_secret_access_key = secret\naws_session_token = token\n")
	if _, err := open("AWS_SHARED_CREDENTIALS_FILE", file, "AWS_PROFILE", "job", "AWS_REGION", "eu-west-1").Stat(ctx, o.Name); err != nil {
		t.Errorf("keys of a file: %v", err)
	}
	if _, err := NewS3(env("AWS_SHARED_CREDENTIALS_FILE", file, "AWS_PROFILE", "none")); err == nil || !strings.Contains(err.Error(), `there are none for profile "none"`) {
		t.Errorf("%v", err)
	}
	if _, err := NewS3(env("HORA_S3_ENDPOINT", "nowhere")); err == nil {
		t.Error("an endpoint without a scheme")
	}
	if got, _ := s.(*S3).address("s3://b/x y"); got != server.URL+"/b/x%20y" {
		t.Error(got)
	}
}
