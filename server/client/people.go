package client

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Role is what a user may do in a project.
type Role struct {
	Project string `json:"project" minLength:"1" maxLength:"200" doc:"a project, or * for all of them"`
	Role    string `json:"role" enum:"viewer,member,admin"`
}

// User is somebody who has roles.
type User struct {
	Name  string    `json:"name"`
	Added time.Time `json:"added"`
	Roles []Role    `json:"roles,omitempty"`
}

// Pass is a user's token: it may do what the user may, or less.
type Pass struct {
	ID      int64     `json:"id"`
	User    string    `json:"user" doc:"empty for whoever has the server's own token"`
	Role    string    `json:"role,omitempty" doc:"no more than this"`
	Project string    `json:"project,omitempty" doc:"nothing but this project"`
	Job     int64     `json:"job,omitempty" doc:"nothing but this job: to read it, and to add files and tags"`
	Label   string    `json:"label,omitempty"`
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires,omitzero"`
	Token   string    `json:"token,omitempty" doc:"the token itself, which the server says once"`
}

// NewPass asks for a token.
type NewPass struct {
	User    string  `json:"user,omitempty" maxLength:"64" doc:"whose; the caller's own when left out"`
	Role    string  `json:"role,omitempty" enum:"viewer,member,admin" doc:"no more than this"`
	Project string  `json:"project,omitempty" maxLength:"200" doc:"nothing but this project"`
	Job     int64   `json:"job,omitempty" minimum:"0" doc:"nothing but this job"`
	Label   string  `json:"label,omitempty" maxLength:"200" doc:"what it is for"`
	Seconds float64 `json:"seconds,omitempty" minimum:"0" maximum:"1000000000" doc:"how long it is valid; for ever when left out"`
}

// Me is whom the server takes a caller for.
type Me struct {
	User    string    `json:"user" doc:"empty for whoever has the server's own token"`
	Owner   bool      `json:"owner,omitempty" doc:"has the server's own token, and may do everything"`
	Roles   []Role    `json:"roles,omitempty"`
	Job     int64     `json:"job,omitempty" doc:"nothing but this job"`
	Expires time.Time `json:"expires,omitzero"`
}

// Deed is a record of who did what.
type Deed struct {
	ID      int64     `json:"id"`
	At      time.Time `json:"at"`
	Who     string    `json:"who"`
	Address string    `json:"address" doc:"where the call came from"`
	What    string    `json:"what" doc:"the operation"`
	Target  string    `json:"target" doc:"its path"`
	Status  int       `json:"status" doc:"what was answered"`
	Text    string    `json:"text,omitempty"`
	Hash    string    `json:"hash" doc:"of this record and the hash before it"`
}

// Deeds is one answer of a list of records.
type Deeds struct {
	Deeds []Deed `json:"deeds"`
	Next  string `json:"next,omitempty" doc:"give it as cursor for what was before"`
}

// Chain is what a check of the records has found.
type Chain struct {
	Records int64  `json:"records" doc:"how many there are up to there"`
	Hash    string `json:"hash" doc:"of the last record: note it elsewhere"`
	Broken  string `json:"broken,omitempty" doc:"the first record that does not fit"`
	Next    string `json:"next,omitempty" doc:"give it as cursor to go on from there"`
}

// Me answers whom the server takes this client for.
func (c *Client) Me(ctx context.Context) (m Me, err error) {
	return m, c.call(ctx, "GET", "/me", nil, nil, &m)
}

// Users lists the users and their roles.
func (c *Client) Users(ctx context.Context) (all []User, err error) {
	return all, c.call(ctx, "GET", "/users", nil, nil, &all)
}

// SetRole gives a user a role, who is added where that is the first one; an empty role takes it away.
func (c *Client) SetRole(ctx context.Context, user, project, role string) (u User, err error) {
	if role == "" {
		return u, c.call(ctx, "DELETE", "/users/"+url.PathEscape(user)+"/roles/"+url.PathEscape(project), nil, nil, nil)
	}
	return u, c.call(ctx, "PUT", "/users/"+url.PathEscape(user)+"/roles", nil, Role{project, role}, &u)
}

// RemoveUser forgets a user with all tokens.
func (c *Client) RemoveUser(ctx context.Context, user string) error {
	return c.call(ctx, "DELETE", "/users/"+url.PathEscape(user), nil, nil, nil)
}

// Passes lists the caller's tokens; an administrator's answer has everybody's.
func (c *Client) Passes(ctx context.Context) (all []Pass, err error) {
	return all, c.call(ctx, "GET", "/tokens", nil, nil, &all)
}

// NewPass makes a token, which is answered this once.
func (c *Client) NewPass(ctx context.Context, n NewPass) (p Pass, err error) {
	return p, c.call(ctx, "POST", "/tokens", nil, n, &p)
}

// RevokePass takes a token back, and the sessions of browsers that were let in by it.
func (c *Client) RevokePass(ctx context.Context, id int64) error {
	return c.call(ctx, "DELETE", fmt.Sprintf("/tokens/%d", id), nil, nil, nil)
}

// Deeds lists who did what, the newest first.
func (c *Client) Deeds(ctx context.Context, cursor string, limit int) (d Deeds, err error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return d, c.call(ctx, "GET", "/audit?"+q.Encode(), nil, nil, &d)
}

// CheckDeeds follows the chain of records.
func (c *Client) CheckDeeds(ctx context.Context) (is Chain, err error) {
	cursor := ""
	for {
		is = Chain{}
		if err := c.call(ctx, "GET", "/audit/check"+cursor, nil, nil, &is); err != nil || is.Next == "" || is.Broken != "" {
			return is, err
		}
		cursor = "?cursor=" + url.QueryEscape(is.Next)
	}
}
