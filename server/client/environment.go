package client

import (
	"context"
	"fmt"
)

// Environment is what a job needs beside the packages of the pool's interpreter.
type Environment struct {
	Pip         []string         `json:"pip,omitempty" maxItems:"5000" doc:"requirements, and options about an index, as the lines of a requirements file"`
	Constraints []string         `json:"constraints,omitempty" maxItems:"5000" doc:"bounds on releases, as the lines of a constraints file"`
	Nearest     []string         `json:"nearest,omitempty" maxItems:"100" doc:"as torch==1.13: the interpreter's own release where it has one, else the nearest one that installs"`
	Conda       []string         `json:"conda,omitempty" maxItems:"5000" doc:"packages of conda, which must be on the node unless the interpreter has them"`
	Channels    []string         `json:"channels,omitempty" maxItems:"100" doc:"where conda looks"`
	Python      string           `json:"python,omitempty" maxLength:"40" doc:"the release that was asked for; the pool's own is taken, and the job's output says so"`
	File        *EnvironmentFile `json:"file,omitempty" doc:"a file that the server reads into the fields above"`
	Lock        []string         `json:"lock,omitempty" maxItems:"20000" doc:"what was taken, as requirements; a later attempt takes the same"`
}

// EnvironmentFile is a requirements file, or an environment of conda (.yml, .yaml).
type EnvironmentFile struct {
	Name string `json:"name" maxLength:"1000"`
	Text string `json:"text" maxLength:"1000000"`
}

// Tag gives a job tags and takes others from it.
func (c *Client) Tag(ctx context.Context, id int64, set map[string]string, remove []string) (j Job, err error) {
	body := struct {
		Set    map[string]string `json:"set,omitempty"`
		Remove []string          `json:"remove,omitempty"`
	}{set, remove}
	return j, c.call(ctx, "PATCH", fmt.Sprintf("/jobs/%d/tags", id), nil, body, &j)
}

// Report adds points of metrics to a job, whether it has ended or not: beside those of its rank 0.
func (c *Client) Report(ctx context.Context, id int64, points []Reported) error {
	body := map[string][]Reported{"points": points}
	return c.call(ctx, "POST", fmt.Sprintf("/jobs/%d/metrics", id), nil, body, nil)
}

// Attach adds a file to what came back of a job: content that the server has, under a path below outputs/.
func (c *Client) Attach(ctx context.Context, id int64, path, hash string) (a Artifact, err error) {
	return a, c.call(ctx, "POST", fmt.Sprintf("/jobs/%d/artifacts", id), nil, map[string]string{"path": path, "hash": hash}, &a)
}
