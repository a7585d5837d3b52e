package client

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"hora/job"
)

// Webhook is an address that hears of jobs.
type Webhook struct {
	ID        int64       `json:"id,omitempty" doc:"the server says it"`
	URL       string      `json:"url" minLength:"1" maxLength:"2000" doc:"https, or http on the loopback"`
	States    []job.State `json:"states,omitempty" maxItems:"7" enum:"queued,preparing,running,paused,finished,failed,cancelled" doc:"what it hears of; finished, failed and cancelled when left out"`
	Project   string      `json:"project,omitempty" maxLength:"200" doc:"only jobs of this project"`
	Secret    string      `json:"secret,omitempty" doc:"with which deliveries are signed; the server says it once, when the webhook is added"`
	Waiting   int         `json:"waiting,omitempty" doc:"deliveries that have not succeeded yet; the server says it"`
	Delivered time.Time   `json:"delivered,omitzero" doc:"when the last one did; the server says it"`
	Failed    string      `json:"failed,omitempty" doc:"why the last one did not; the server says it"`
}

// Delivery is what a webhook hears.
type Delivery struct {
	Type      string    `json:"type"` // job.finished, or ping
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		Job *Job `json:"job,omitempty"`
	} `json:"data"`
}

// Answered is how a test of a webhook went.
type Answered struct {
	Status  int     `json:"status" doc:"of what the address answered"`
	Seconds float64 `json:"seconds"`
}

// Retention says how long a project's jobs and what they left are kept, in seconds from an hour on; 0 is for ever.
type Retention struct {
	Project   string `json:"project,omitempty" doc:"empty for what holds where a project has none of its own; the server says it"`
	Jobs      int64  `json:"jobs,omitempty" minimum:"0" maximum:"1000000000" doc:"jobs that have ended, with all that is below: seconds, 3600 or more; 0 is for ever"`
	Logs      int64  `json:"logs,omitempty" minimum:"0" maximum:"1000000000" doc:"what they wrote; as jobs"`
	Metrics   int64  `json:"metrics,omitempty" minimum:"0" maximum:"1000000000" doc:"what they reported; as jobs"`
	Artifacts int64  `json:"artifacts,omitempty" minimum:"0" maximum:"1000000000" doc:"what came back of outputs/; as jobs"`

	Removes *Removes `json:"removes,omitempty" doc:"of how many jobs something is older than that and goes now; the server says it of times that were just set"`
}

// Removes counts jobs of which something is kept no longer, by what it is.
type Removes struct {
	Jobs      int64 `json:"jobs,omitempty"`
	Logs      int64 `json:"logs,omitempty"`
	Metrics   int64 `json:"metrics,omitempty"`
	Artifacts int64 `json:"artifacts,omitempty"`
}

// Webhooks lists the webhooks.
func (c *Client) Webhooks(ctx context.Context) (all []Webhook, err error) {
	return all, c.call(ctx, "GET", "/webhooks", nil, nil, &all)
}

// AddWebhook adds one. Its secret is answered this once.
func (c *Client) AddWebhook(ctx context.Context, w Webhook) (is Webhook, err error) {
	return is, c.call(ctx, "POST", "/webhooks", nil, w, &is)
}

// RemoveWebhook removes one, with what it has not heard yet.
func (c *Client) RemoveWebhook(ctx context.Context, id int64) error {
	return c.call(ctx, "DELETE", fmt.Sprintf("/webhooks/%d", id), nil, nil, nil)
}

// TestWebhook sends a ping now.
func (c *Client) TestWebhook(ctx context.Context, id int64) (a Answered, err error) {
	return a, c.call(ctx, "POST", fmt.Sprintf("/webhooks/%d/test", id), nil, nil, &a)
}

// Retentions lists how long what is kept.
func (c *Client) Retentions(ctx context.Context) (all []Retention, err error) {
	return all, c.call(ctx, "GET", "/retention", nil, nil, &all)
}

// SetRetention says how long a project's things are kept; those of all others with an empty name.
func (c *Client) SetRetention(ctx context.Context, project string, r Retention) (is Retention, err error) {
	r.Project = ""
	if project == "" {
		return is, c.call(ctx, "PUT", "/retention", nil, r, &is)
	}
	return is, c.call(ctx, "PUT", "/projects/"+url.PathEscape(project)+"/retention", nil, r, &is)
}
