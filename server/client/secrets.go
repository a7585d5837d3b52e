package client

import (
	"context"
	"net/url"
	"time"
)

// Secret is one of a project's: what it is the server says to jobs alone.
type Secret struct {
	Project string    `json:"project"`
	Name    string    `json:"name"`
	By      string    `json:"by" doc:"who set it"`
	Set     time.Time `json:"set"`
}

func secretPath(project, name string) string {
	return "/projects/" + url.PathEscape(project) + "/secrets/" + url.PathEscape(name)
}

// Secrets lists a project's secrets by name.
func (c *Client) Secrets(ctx context.Context, project string) (all []Secret, err error) {
	return all, c.call(ctx, "GET", "/projects/"+url.PathEscape(project)+"/secrets", nil, nil, &all)
}

// SetSecret sets one.
func (c *Client) SetSecret(ctx context.Context, project, name string, value []byte) (s Secret, err error) {
	return s, c.call(ctx, "PUT", secretPath(project, name), nil, map[string][]byte{"value": value}, &s)
}

// RemoveSecret forgets one; jobs that run keep it.
func (c *Client) RemoveSecret(ctx context.Context, project, name string) error {
	return c.call(ctx, "DELETE", secretPath(project, name), nil, nil, nil)
}
