package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
)

// TestARevokedNode: it is listed, let in no more, and its program ends; its job ends there and queues again, as that of
// a node that is lost, and eats no retry.
func TestARevokedNode(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	s.kill()
	s.more = []string{"--patience", "8s"}
	s.up()
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	one := s.joining("one", "lab")
	d := shell(1, `echo "attempt $HORA_SERVER_ATTEMPT"; [ $HORA_SERVER_ATTEMPT -gt 1 ] || exec sleep 60`)
	d.Pool = "lab"
	j := s.submit(d)
	s.until(j.ID, in(job.Running))
	s.eventually("it has begun", func() bool { return strings.Contains(s.text(j.ID), "attempt 1") })
	if r := s.hora("node", "list"); r.code != 0 || !strings.Contains(r.out, "one   lab   20") || !strings.Contains(r.out, "ready") {
		t.Errorf("%+v", r)
	}
	for args, says := range map[string]string{
		"node revoke":     "hora node revoke takes the name of a node: hora node list has them",
		"node revoke two": "there is no node two that has a token: hora node list has those that there are",
		"node lst":        `"lst"`,
	} {
		if r := s.hora(strings.Fields(args)...); r.code == 0 || !strings.Contains(r.errs, says) {
			t.Errorf("hora %s: %+v", args, r)
		}
	}
	if r := s.hora("node", "revoke", "one"); r.code != 0 || r.out != "node one is let in no more\n" {
		t.Fatalf("%+v", r)
	}
	if err := one.Wait(); err == nil {
		t.Error("the node's program has ended as if it had been told to")
	}
	s.joining("other", "lab")
	if j = s.until(j.ID, ended); j.State != job.Finished || len(j.Attempts) != 2 {
		t.Errorf("the job ended as %+v", j)
	}
	if r := s.hora("job", fmt.Sprint(j.ID)); !strings.Contains(r.out, "node one was lost") {
		t.Errorf("its story is %s", r.out)
	}
	r := s.hora("node", "list", "--json")
	var all []client.Member
	err := json.Unmarshal([]byte(r.out), &all)
	if err != nil || len(all) != 1 || all[0].Node != "other" || all[0].State != "ready" {
		t.Errorf("%s, %v", r.out, err)
	}
	for _, d := range s.recorded("node one join /pools/lab 200", "owner revoke-node /nodes/one/token 204", "nobody join /node 401", "node other join /pools/lab 200") {
		if strings.Contains(d.Target, "/nodes/two") {
			t.Errorf("nothing was revoked, and it is recorded as %+v", d)
		}
	}
}
