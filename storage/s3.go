package storage

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"hora/storage/credentials"
)

// S3 is Amazon's object storage and what speaks as it does. Names are
// s3://bucket/key.
type S3 struct {
	web      *Web
	keys     credentials.AWS
	region   string
	endpoint string // scheme and host; "": Amazon's
	now      func() time.Time
}

// NewS3 takes keys, region and endpoint from the environment: AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the shared credentials file; without
// any, requests are not signed, which is enough for public data.
func NewS3(lookup func(string) string) (*S3, error) {
	s := &S3{web: NewWeb(), region: first(lookup, "AWS_REGION", "AWS_DEFAULT_REGION"), now: time.Now}
	if s.region == "" {
		s.region = "us-east-1"
	}
	s.endpoint = strings.TrimSuffix(first(lookup, "HORA_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "/")
	if s.endpoint != "" {
		if u, err := url.Parse(s.endpoint); err != nil || u.Host == "" {
			return nil, fmt.Errorf("use the S3 endpoint %q: it is no address; set HORA_S3_ENDPOINT to one such as https://host:9000", s.endpoint)
		}
	}
	var err error
	if s.keys, err = credentials.FindAWS(lookup); err != nil {
		return nil, err
	}
	s.web.url, s.web.sign = s.address, s.sign
	return s, nil
}

func first(lookup func(string) string, names ...string) string {
	for _, name := range names {
		if v := lookup(name); v != "" {
			return v
		}
	}
	return ""
}

// split takes a name apart.
func split(name string) (bucket, key string, err error) {
	_, rest, _ := strings.Cut(name, "://")
	bucket, key, _ = strings.Cut(rest, "/")
	if bucket == "" {
		return "", "", errors.New("it names no bucket: write s3://bucket/path")
	}
	return bucket, key, nil
}

// address is the URL of a name: the bucket is part of the host where that can be.
func (s *S3) address(name string) (string, error) {
	name, query, _ := strings.Cut(name, "\x00")
	bucket, key, err := split(name)
	if err != nil {
		return "", err
	}
	host, path := s.endpoint, "/"+bucket+"/"+key
	if host == "" {
		host = "https://s3." + s.region + ".amazonaws.com"
		if !strings.Contains(bucket, ".") {
			host, path = "https://"+bucket+".s3."+s.region+".amazonaws.com", "/"+key
		}
	}
	address := host + escape(path, false)
	if query != "" {
		address += "?" + query
	}
	return address, nil
}

// escape encodes as the signature wants it: everything but letters, digits and -._~,
// and slashes in paths.
func escape(text string, slashes bool) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("-._~", c) >= 0 || c == '/' && !slashes {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// sign adds version 4 of Amazon's signature over the method, the address, the headers
// and the body.
func (s *S3) sign(r *http.Request, body []byte) {
	if s.keys.ID == "" {
		return
	}
	sum := sha256.Sum256(body)
	hash, at := hex.EncodeToString(sum[:]), s.now().UTC()
	r.Header.Set("X-Amz-Content-Sha256", hash)
	r.Header.Set("X-Amz-Date", at.Format("20060102T150405Z"))
	if s.keys.Token != "" {
		r.Header.Set("X-Amz-Security-Token", s.keys.Token)
	}
	names := []string{"host"}
	values := map[string]string{"host": r.URL.Host}
	for name, v := range r.Header {
		name = strings.ToLower(name)
		names = append(names, name)
		values[name] = strings.TrimSpace(strings.Join(v, ","))
	}
	slices.Sort(names)
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n%s\n", r.Method, escape(r.URL.Path, false), r.URL.RawQuery)
	for _, name := range names {
		fmt.Fprintf(&canonical, "%s:%s\n", name, values[name])
	}
	signed := strings.Join(names, ";")
	fmt.Fprintf(&canonical, "\n%s\n%s", signed, hash)
	whole := sha256.Sum256([]byte(canonical.String()))
	scope := at.Format("20060102") + "/" + s.region + "/s3/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + at.Format("20060102T150405Z") + "\n" + scope + "\n" + hex.EncodeToString(whole[:])
	key := []byte("AWS4" + s.keys.Secret)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%x", s.keys.ID, scope, signed, mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// listing is an answer to ListObjectsV2.
type listing struct {
	Contents []struct {
		Key  string
		Size int64
		ETag string
	}
	IsTruncated           bool
	NextContinuationToken string
}

// List answers the objects below a folder, or the one of that name.
func (s *S3) List(ctx context.Context, name string) ([]Object, error) {
	bucket, key, err := split(name)
	if err != nil {
		return nil, &Error{"list", name, err}
	}
	if key != "" && !strings.HasSuffix(key, "/") {
		o, err := s.Stat(ctx, name)
		if err == nil || !errors.Is(err, ErrNotFound) {
			return []Object{o}, err
		}
		key += "/"
	}
	scheme, _, _ := strings.Cut(name, "://")
	var all []Object
	for token := ""; ; {
		query := "list-type=2&prefix=" + escape(key, true)
		if token != "" {
			query = "continuation-token=" + escape(token, true) + "&" + query
		}
		var page listing
		err := s.web.repeat(ctx, "list", name, func(ctx context.Context) error {
			answer, err := s.web.do(ctx, http.MethodGet, scheme+"://"+bucket+"/\x00"+query, nil, nil)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			page = listing{}
			return xml.NewDecoder(io.LimitReader(answer.Body, 16<<20)).Decode(&page)
		})
		if err != nil {
			return nil, err
		}
		for _, c := range page.Contents {
			if below := strings.TrimPrefix(c.Key, key); below != "" && !strings.HasSuffix(c.Key, "/") && !hidden(below) {
				all = append(all, Object{scheme + "://" + bucket + "/" + c.Key, c.Size, c.ETag})
			}
		}
		if !page.IsTruncated || page.NextContinuationToken == "" || page.NextContinuationToken == token {
			break
		}
		token = page.NextContinuationToken
	}
	if len(all) == 0 {
		return nil, &Error{"list", name, ErrNotFound}
	}
	return all, nil
}

// Stat looks at one object.
func (s *S3) Stat(ctx context.Context, name string) (Object, error) { return s.web.Stat(ctx, name) }

// ReadAt gets a range of an object that is still what it was.
func (s *S3) ReadAt(ctx context.Context, o Object, p []byte, offset int64) error {
	return s.web.ReadAt(ctx, o, p, offset)
}

// Put writes an object: others see the old one or the whole new one.
func (s *S3) Put(ctx context.Context, name string, content []byte) error {
	return s.web.Put(ctx, name, content)
}
