package server

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
)

// webhooks are those who hear of jobs. What they are to hear is written down with what happened, in one transaction,
// and sent by a goroutine for each, at least once and however often the server is started anew.
type webhooks struct {
	mu   sync.Mutex // guards all and ends
	all  []client.Webhook
	ends map[int64]context.CancelFunc // of who sends
	news map[int64]chan struct{}
	http *http.Client
}

// deliverWithin bounds one delivery.
const deliverWithin = 10 * time.Second

func newWebhooks() *webhooks {
	return &webhooks{ends: map[int64]context.CancelFunc{}, news: map[int64]chan struct{}{}, http: &http.Client{
		Timeout: deliverWithin,
		// What is signed goes to nobody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// openWebhooks starts to send what an earlier server has left.
func (s *Server) openWebhooks(ctx context.Context) error {
	all, err := s.store.Webhooks(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		s.hear(&all[i])
	}
	return nil
}

// hear starts what sends to one webhook.
func (s *Server) hear(w *client.Webhook) {
	h := s.hooks
	ctx, cancel := context.WithCancel(s.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all, h.ends[w.ID], h.news[w.ID] = append(h.all, *w), cancel, make(chan struct{}, 1)
	hook, news := *w, h.news[w.ID]
	s.wg.Go(func() { s.deliver(ctx, &hook, news) })
}

// announce is what goes with a change of a job's state into its transaction.
func (s *Server) announce(tx *sql.Tx, j *client.Job) error {
	h := s.hooks
	h.mu.Lock()
	defer h.mu.Unlock()
	var body []byte
	for i := range h.all {
		w := &h.all[i]
		if !slices.Contains(w.States, j.State) || w.Project != "" && w.Project != j.Document.Project {
			continue
		}
		now := s.now().UTC()
		if body == nil {
			d := client.Delivery{Type: "job." + string(j.State), Timestamp: now}
			with := *j
			with.Document.Spec.Env = nil // where people put what others are not to see
			d.Data.Job = &with
			var err error
			if body, err = json.Marshal(d); err != nil {
				return err
			}
		}
		if err := store.AddDelivery(tx, w.ID, now, body); err != nil {
			return err
		}
	}
	return nil
}

// announced lets what was written be sent.
func (s *Server) announced() {
	h := s.hooks
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, news := range h.news {
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

// pauses are those between the tries of one delivery; the last one goes on until keepTrying is over.
var pauses = []time.Duration{
	time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour,
}

// keepTrying is how long a delivery is tried, and triesMost how often: tries count, since clocks jump.
const (
	keepTrying = 3 * 24 * time.Hour
	triesMost  = 77 // the last pause is an hour
)

// deliver sends what one webhook is to hear, until it is removed or the server ends.
func (s *Server) deliver(ctx context.Context, w *client.Webhook, news <-chan struct{}) {
	for {
		wait := time.Hour
		some, err := s.store.Deliveries(ctx, w.ID, 20)
		if err != nil {
			wait = time.Second
		}
		for i := range some {
			d := &some[i]
			if wait = time.Until(d.Due); wait > 0 && wait <= pauses[len(pauses)-1] {
				break
			} // one that is due later than that was put off by a clock that was ahead
			s.deliverOne(ctx, w, d)
			wait = 0
		}
		select {
		case <-news:
		case <-time.After(max(wait, 0)):
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) deliverOne(ctx context.Context, w *client.Webhook, d *store.Delivery) {
	status, err := s.hooks.send(ctx, w, "msg_"+strconv.FormatInt(d.ID, 10), []byte(d.Body))
	if ctx.Err() != nil {
		return
	}
	if err == nil && (status < 200 || status > 299) {
		err = fmt.Errorf("it answered %d %s", status, http.StatusText(status))
	}
	now := s.now()
	write := func(tx *sql.Tx) error { return store.Delivered(tx, d, now) }
	if err != nil {
		again := now.Add(pauses[min(d.Tries, len(pauses)-1)])
		text := err.Error()
		last := d.Tries+1 >= triesMost
		if last {
			again, text = time.Time{}, fmt.Sprintf("given up after %v: %s", keepTrying, text)
		}
		if d.Tries == 0 || last { // a receiver that is away for a day is one line a delivery, not one a try
			s.log.Warn("call a webhook", "webhook", w.ID, "delivery", d.ID, "error", text)
		}
		write = func(tx *sql.Tx) error { return store.Undelivered(tx, d, text, again) }
	}
	if err := s.store.Do(ctx, write); err != nil && ctx.Err() == nil {
		s.log.Warn("note a delivery", "webhook", w.ID, "error", err)
		select {
		case <-time.After(time.Second): // it comes again
		case <-ctx.Done():
		}
	}
}

// secretMark begins a secret, as the rules of standardwebhooks.com have it.
const secretMark = "whsec_"

// send calls a webhook once. The signature is over number, time and body.
func (h *webhooks) send(ctx context.Context, w *client.Webhook, id string, body []byte) (status int, err error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(w.Secret, secretMark))
	if err != nil {
		return 0, fmt.Errorf("its secret is damaged: remove the webhook and add it again")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, strings.NewReader(string(body)))
	if err != nil {
		return 0, err
	}
	when := strconv.FormatInt(time.Now().Unix(), 10)
	sum := hmac.New(sha256.New, key)
	fmt.Fprintf(sum, "%s.%s.%s", id, when, body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "hora")
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", when)
	r.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	answer, err := h.http.Do(r)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // without the address, which may have a token
		}
		return 0, errors.New(client.Plain(err))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16))
	answer.Body.Close()
	return answer.StatusCode, nil
}

// webhooksMost is how many webhooks a server has.
const webhooksMost = 100

// AddWebhook adds a webhook, and answers its secret.
func (s *Server) AddWebhook(ctx context.Context, w client.Webhook) (client.Webhook, error) {
	u, err := url.Parse(w.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return w, refuse(422, "%.200q is no address of a webhook: write it as https://HOST/PATH", w.URL)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return w, refuse(422, "http://%.200s is not encrypted, and what jobs are called would go in clear: give an https address", u.Host)
	}
	if len(w.States) == 0 {
		w.States = []job.State{job.Finished, job.Failed, job.Cancelled}
	}
	var key [24]byte
	rand.Read(key[:])
	w = client.Webhook{
		URL: w.URL, States: w.States, Project: w.Project,
		Secret: secretMark + base64.StdEncoding.EncodeToString(key[:]),
	}
	s.hooks.mu.Lock()
	full := len(s.hooks.all) >= webhooksMost
	s.hooks.mu.Unlock()
	if full {
		return w, refuse(409, "there are %d webhooks, and more are not kept: remove one, as in hora webhook remove 1", webhooksMost)
	}
	if err := s.store.Do(ctx, func(tx *sql.Tx) (err error) {
		w.ID, err = store.NewWebhook(tx, &w)
		return err
	}); err != nil {
		return w, err
	}
	s.hear(&w)
	return w, nil
}

// Webhooks lists the webhooks, without their secrets.
func (s *Server) Webhooks(ctx context.Context) ([]client.Webhook, error) {
	all, err := s.store.Webhooks(ctx)
	for i := range all {
		all[i].Secret = ""
	}
	return all, err
}

func noWebhook(id int64) error {
	return refuse(404, "there is no webhook %d: hora webhook list has those that there are", id)
}

// RemoveWebhook removes a webhook, with what it has not heard.
func (s *Server) RemoveWebhook(ctx context.Context, id int64) error {
	drop := func(tx *sql.Tx) (bool, error) { return store.DropWebhook(tx, id) }
	if err := s.drop(ctx, drop, noWebhook(id)); err != nil {
		return err
	}
	h := s.hooks
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.DeleteFunc(h.all, func(w client.Webhook) bool { return w.ID == id })
	if end := h.ends[id]; end != nil {
		end()
	}
	delete(h.ends, id)
	delete(h.news, id)
	return nil
}

// TestWebhook sends a ping now, and answers what came back.
func (s *Server) TestWebhook(ctx context.Context, id int64) (client.Answered, error) {
	s.hooks.mu.Lock()
	i := slices.IndexFunc(s.hooks.all, func(w client.Webhook) bool { return w.ID == id })
	var w client.Webhook
	if i >= 0 {
		w = s.hooks.all[i]
	}
	s.hooks.mu.Unlock()
	if i < 0 {
		return client.Answered{}, noWebhook(id)
	}
	body, err := json.Marshal(client.Delivery{Type: "ping", Timestamp: s.now().UTC()})
	if err != nil {
		return client.Answered{}, err
	}
	begin := time.Now()
	status, err := s.hooks.send(ctx, &w, "msg_ping_"+client.Key(), body)
	if err != nil {
		return client.Answered{}, refuse(http.StatusBadGateway, "webhook %d was not reached: %v: see whether its address is right and its server runs", id, err)
	}
	return client.Answered{Status: status, Seconds: time.Since(begin).Seconds()}, nil
}
