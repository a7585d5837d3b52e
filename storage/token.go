package storage

import (
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
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// bearer is a token that requests carry, and how another is got before it ends.
type bearer struct {
	web *Web // that asks for tokens; without one itself
	ask func() (address string, form url.Values, err error)
	now func() time.Time

	mu    sync.Mutex // held while a token is asked for: all requests wait for the one
	token string
	until time.Time // zero: it stays
}

// get answers a token that is good for another minute.
func (b *bearer) get(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ask == nil || b.token != "" && b.now().Add(time.Minute).Before(b.until) {
		return b.token, nil
	}
	address, form, err := b.ask()
	if err != nil {
		return "", final(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return "", final(fmt.Errorf("ask %q for a token: it is no address", address))
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := b.web.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask for a token: %w", err)
	}
	defer answer.Body.Close()
	switch code := answer.StatusCode; {
	case code == http.StatusTooManyRequests || code >= 500:
		return "", &busy{answer.Status, after(answer)}
	case code != http.StatusOK:
		return "", final(fmt.Errorf("ask %s for a token: it answers %s: %w", address, answer.Status, ErrDenied))
	}
	var got struct {
		Token   string `json:"access_token"`
		Seconds int64  `json:"expires_in"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&got); err != nil || got.Token == "" {
		return "", final(fmt.Errorf("ask %s for a token: its answer has none", address))
	}
	b.token, b.until = got.Token, b.now().Add(time.Duration(got.Seconds)*time.Second)
	return b.token, nil
}

// account is Google's file of a service account's key, or of a user's refresh token.
type account struct {
	Type    string `json:"type"`
	Email   string `json:"client_email"`
	Key     string `json:"private_key"`
	KeyID   string `json:"private_key_id"`
	At      string `json:"token_uri"`
	ID      string `json:"client_id"`
	Secret  string `json:"client_secret"`
	Refresh string `json:"refresh_token"`
}

const (
	googleTokens = "https://oauth2.googleapis.com/token"
	googleScope  = "https://www.googleapis.com/auth/devstorage.read_write"
)

// readAccount makes what asks for tokens of an account's file.
func readAccount(name string, now func() time.Time) (func() (string, url.Values, error), error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, localError("read the key of Google's storage from", name, err)
	}
	var a account
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("read the key of Google's storage from %s: it is no JSON: %w", name, err)
	}
	if a.At == "" {
		a.At = googleTokens
	}
	switch a.Type {
	case "authorized_user":
		form := url.Values{"grant_type": {"refresh_token"}, "client_id": {a.ID}, "client_secret": {a.Secret}, "refresh_token": {a.Refresh}}
		return func() (string, url.Values, error) { return a.At, form, nil }, nil
	case "service_account":
	default:
		return nil, fmt.Errorf("read the key of Google's storage from %s: it is of the type %q, and hora knows service_account and authorized_user", name, a.Type)
	}
	block, _ := pem.Decode([]byte(a.Key))
	if block == nil {
		return nil, fmt.Errorf("read the key of Google's storage from %s: its private_key is none", name)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, is := parsed.(*rsa.PrivateKey)
	if err != nil || !is {
		return nil, fmt.Errorf("read the key of Google's storage from %s: its private_key is no RSA key", name)
	}
	return func() (string, url.Values, error) {
		signed, err := a.assert(key, now())
		return a.At, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {signed}}, err
	}, nil
}

// assert is a signed statement of who asks, good for an hour.
func (a *account) assert(key *rsa.PrivateKey, now time.Time) (string, error) {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // texts and numbers
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"alg": "RS256", "typ": "JWT", "kid": a.KeyID}) + "." + part(map[string]any{
		"iss": a.Email, "scope": googleScope, "aud": a.At, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign who asks Google's storage: %w", err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// NewGCS is Google's storage, whose names are gs://bucket/key. Its XML interface lists and
// reads as S3 does; requests carry a token. It comes from HORA_GCS_TOKEN or
// GOOGLE_OAUTH_ACCESS_TOKEN, or is got with the key in GOOGLE_APPLICATION_CREDENTIALS;
// without any, requests go as they are, which is enough for public data.
func NewGCS(lookup func(string) string) (*S3, error) {
	s := &S3{web: NewWeb(), region: "auto", now: time.Now, endpoint: "https://storage.googleapis.com"}
	if given := first(lookup, "HORA_GCS_ENDPOINT", "STORAGE_EMULATOR_HOST"); given != "" {
		if !strings.Contains(given, "://") {
			given = "http://" + given
		}
		if u, err := url.Parse(given); err != nil || u.Host == "" {
			return nil, fmt.Errorf("use the endpoint %q of Google's storage: it is no address; set HORA_GCS_ENDPOINT to one such as https://host:9000", given)
		}
		s.endpoint = strings.TrimSuffix(given, "/")
	}
	s.web.url = s.address
	b := &bearer{web: NewWeb(), token: first(lookup, "HORA_GCS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"), now: time.Now}
	if name := lookup("GOOGLE_APPLICATION_CREDENTIALS"); b.token == "" && name != "" {
		var err error
		if b.ask, err = readAccount(name, b.now); err != nil {
			return nil, err
		}
	}
	if b.token != "" || b.ask != nil {
		s.web.token = b.get
	}
	return s, nil
}

// azureTokens is where Azure's directory answers tokens.
const azureTokens = "https://login.microsoftonline.com"

// azureBearer finds Azure's token, or what asks for one.
func azureBearer(lookup func(string) string) (*bearer, error) {
	b := &bearer{web: NewWeb(), token: lookup("HORA_ADLS_TOKEN"), now: time.Now}
	if b.token != "" {
		return b, nil
	}
	tenant, id, secret := lookup("AZURE_TENANT_ID"), lookup("AZURE_CLIENT_ID"), lookup("AZURE_CLIENT_SECRET")
	if tenant == "" || id == "" || secret == "" {
		return nil, errors.New("use Azure's storage: there is no token; set HORA_ADLS_TOKEN, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET of a service principal")
	}
	host := lookup("AZURE_AUTHORITY_HOST")
	if host == "" {
		host = azureTokens
	}
	address := strings.TrimSuffix(host, "/") + "/" + url.PathEscape(tenant) + "/oauth2/v2.0/token"
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {id}, "client_secret": {secret}, "scope": {"https://storage.azure.com/.default"}}
	b.ask = func() (string, url.Values, error) { return address, form, nil }
	return b, nil
}
