package rendezvous

import (
	"context"
	"errors"

	"hora/internal/secret"
)

// Client is a worker's connection to the coordinator. All methods may be called from any goroutine.
type Client struct{}

// Dial connects to the coordinator at addr ("host:port"), proves the secret and says hello. It retries refused
// connections until ctx ends, since workers may start before their coordinator listens.
func Dial(ctx context.Context, addr string, s secret.Secret, me Hello) (*Client, error) {
	return nil, errors.ErrUnsupported
}

// Join offers m as a member and blocks until the next epoch is complete. Rank, LocalRank… of m are filled in by the
// coordinator where m.Rank is -1. After a loss, survivors call Join again on the same Client.
func (c *Client) Join(ctx context.Context, m Member) (Epoch, error) {
	return Epoch{}, errors.ErrUnsupported
}

// Members fetches members of the present epoch that Epoch.Members does not have.
func (c *Client) Members(ctx context.Context, ranks ...int) ([]Member, error) {
	return nil, errors.ErrUnsupported
}

// Put stores a value; it wakes every Get that waits for key. Values stay until Delete or the end of the job.
func (c *Client) Put(ctx context.Context, key string, value []byte) error {
	return errors.ErrUnsupported
}

// Get returns the value of key and waits for it until ctx ends.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// Lookup returns the value of key if there is one.
func (c *Client) Lookup(ctx context.Context, key string) ([]byte, bool, error) {
	return nil, false, errors.ErrUnsupported
}

// Add adds delta to the decimal integer stored at key (0 when absent) and returns the sum.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return 0, errors.ErrUnsupported
}

// Delete removes key and says whether it was there.
func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	return false, errors.ErrUnsupported
}

// Leave takes the worker out of the job on purpose: nobody will report it as lost.
func (c *Client) Leave(ctx context.Context) error { return errors.ErrUnsupported }

// Close ends the connection and joins the client's goroutines. Without Leave before, the worker counts as lost.
func (c *Client) Close() error { return nil }
