package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"hora/server/client"
)

// TestRecordsHaveWhatWasAnswered: whatever a call that changes something answers, also where there is nothing that it
// names, no record of it says anything else; and one that has come well has a record.
func TestRecordsHaveWhatWasAnswered(t *testing.T) {
	c := newCallSite(t, nil)
	_, id := c.callers()
	var api struct {
		Paths map[string]map[string]struct {
			OperationID string
		}
	}
	_, text := c.send(t.Context(), "owner", "GET", "/openapi.json", "", "")
	if err := json.Unmarshal([]byte(text), &api); err != nil {
		t.Fatal(err)
	}
	last := func() client.Deed {
		all, err := c.st.Deeds(t.Context(), 0, 1)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0]
	}
	statuses := map[int]int{}
	for _, methods := range api.Paths {
		for method, op := range methods {
			is := apiCalls[op.OperationID]
			if method == "get" || op.OperationID == "put-blob" || op.OperationID == "missing-blobs" {
				continue
			}
			before := last().ID
			at := strings.ReplaceAll(is.path, "{job}", fmt.Sprint(id))
			status, text := c.send(t.Context(), "owner", strings.ToUpper(method), at, is.body, "application/json")
			statuses[status]++
			d := last()
			switch {
			case d.ID == before && status >= 400: // what was not done need not be told
			case d.ID == before || d.What != op.OperationID:
				t.Errorf("%s answers %d %s, and there is no record of it", op.OperationID, status, text)
			case d.Status != status:
				t.Errorf("%s answers %d %s, and the record says %d", op.OperationID, status, text, d.Status)
			}
		}
	}
	for _, status := range []int{200, 201, 204, 404} {
		if statuses[status] == 0 {
			t.Errorf("none of these calls answers %d", status)
		}
	}
	status := c.press(fmt.Sprintf("/jobs/%d/cancel", c.submit()))
	if d := last(); status != http.StatusSeeOther || d.Status != status || !strings.HasSuffix(d.Target, "/cancel") {
		t.Errorf("a page's button answers %d, and is recorded as %+v", status, d)
	}
}

// press sends a page's form, as who has the server's own token, and does not go where it leads.
func (c *callSite) press(path string) int {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), "POST", c.url+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer owner")
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	a.Body.Close()
	return a.StatusCode
}
