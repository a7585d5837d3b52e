package launch

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/secret"
	"hora/internal/wire"
	jobs "hora/job"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// quiet is a reach to hosts whose agents say nothing.
type quiet struct {
	reach.Reach
	end chan struct{}
}

func (quiet) Called(host string) string { return host }
func (quiet) Begun(func(string))        {}
func (q quiet) Open(string, *reach.Input) (reach.Way, error) {
	r, w := io.Pipe()
	go func() {
		<-q.end
		w.Close()
	}()
	return spoken{r}, nil
}

// discovering returns a job on hosts that a discovery finds, at first one of one slot, as it is before it begins.
func discovering(t *testing.T, key secret.Secret, end chan struct{}) *job {
	t.Helper()
	spec := &settings{
		source: &jobs.Spec{}, Spec: jobs.Spec{NP: 1, Name: "job"}, Hosts: []Host{{Name: "a", Slots: 1}},
		Discovery: &discovery{Script: &Script{}},
		Place: Place{
			Secret: key, Reach: quiet{end: end}, Events: &event.Sink{}, Stdout: io.Discard, Stderr: io.Discard,
		},
	}
	spec.defaults()
	return newJob(spec)
}

// launched opens what it has.
func (j *job) launched(t *testing.T, h *head) {
	t.Helper()
	(&heir{job: j, head: h}).begin()
	if err := j.crew.deal(); err != nil {
		t.Fatal(err)
	}
	var err error
	if j.links.out, err = newOutput(j.spec, len(j.crew.seats)); err == nil {
		err = j.links.open(j.crew.peopled(), j.crew.input)
	}
	if err != nil {
		t.Fatal(err)
	}
	j.admission.routes = []route{{addr: "127.0.0.1:1"}}
	j.links.all[0].host, j.links.all[0].planned = &reach.Host{}, true
	j.crew.begun[0] = j.record.began
}

// TestAnHeirGivesTheOrdersOfThePast: the orders to a coordinator have numbers, by which it is known what one that is
// started again has not heard. Wherever in its ledger a launcher was killed, its heir has the same orders under the
// same numbers, and gives those that the last entry led to and that were not given any more.
func TestAnHeirGivesTheOrdersOfThePast(t *testing.T) {
	key, dir, end := secret.New(), t.TempDir(), make(chan struct{})
	defer close(end)
	l, err := lockLedger(dir, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	j := discovering(t, key, end)
	k := &kept{ledger: l}
	j.record.ledger, j.meeting.server = l, k
	first := &head{Hosts: []Host{{Name: "a", Slots: 1}}}
	j.launched(t, first)
	j.keep()
	began := entries(t, dir)
	n := uint64(0)
	say := func(link int, kind uint8, body []byte) {
		n++
		j.handle(said{l: j.links.all[link], kind: kind, body: body, n: n, waited: true})
	}
	exit := func(link, rank, code int) {
		b := wire.AppendI64(wire.AppendI64(wire.AppendI64(nil, int64(rank)), int64(code)), 0)
		say(link, protocol.SayExited, wire.AppendString(wire.AppendBool(b, false), j.crew.process(rank)))
	}
	started := func(link, rank int) {
		say(link, protocol.SayStarted, wire.AppendI64(wire.AppendI64(nil, int64(rank)), 77))
	}
	listed := func(hosts ...Host) { j.handle(discovered{hosts: hosts}) }
	met := func(epoch uint64, ranks ...int) { // the coordinator has said so
		for _, rank := range ranks {
			j.meeting.took.Store(rank, true)
		}
		j.meeting.size.Store(int64(len(ranks)))
		j.meeting.epoch.Store(epoch)
	}
	a, b := Host{Name: "a", Slots: 1}, Host{Name: "b", Slots: 2}
	steps := []func(){
		func() { started(0, 0) },
		func() { met(1, 0); listed(a, b) }, // two on b
		func() { j.links.all[1].host = &reach.Host{}; j.handle(probed{j.links.all[1], []bool{true}}) },
		func() { started(1, 1) },
		func() { started(1, 2) },
		func() { exit(1, 2, 3) },                               // before it has joined
		func() { met(2, 0, 1); j.supply.heed(elastic.Tick{}) }, // in no entry
		func() { listed(Host{Name: "a", Slots: 2}, b) },
		func() { started(0, 2) },
		func() { met(3, 0, 1, 2); j.supply.heed(elastic.Tick{}) },
		func() { listed(Host{Name: "a", Slots: 2}) },
		func() { j.meeting.drained.Store(1, "asked"); exit(1, 1, 1) },
		func() { listed(Host{Name: "a", Slots: 2}, Host{Name: "b", Slots: 1}, Host{Name: "c", Slots: 1}) },
	}
	j.links.all[0].asked = nil
	var after []mark // each step
	for i, step := range steps {
		if i == 2 {
			j.links.all[1].asked = []string{"127.0.0.1:1"}
		}
		step()
		after = append(after, mark{entries(t, dir), len(k.orders)})
	}
	if len(k.orders) < 11 {
		t.Fatalf("only %d orders: %+v", len(k.orders), k.orders)
	}
	text, err := os.ReadFile(filepath.Join(dir, "launcher"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for at := began; at < len(lines); at++ {
		its := inherited(t, key, end, strings.Join(lines[:at], ""))
		told := strings.Count(strings.Join(lines[:at], ""), `{"kind":"order"`)
		if err := continues(its.meeting.server.(*kept).orders, k.orders, told, at, after); err != nil {
			t.Errorf("killed after line %d, %s: %v", at, lines[at-1], err)
		}
	}
}

// mark is how far a step has come.
type mark struct{ entries, orders int }

// continues says what is wrong with an heir's orders: the first of them are those that the ledger holds, and the others
// those of the step that was cut off, if its entry is there.
func continues(its, all []order, told, at int, after []mark) error {
	if len(its) < told {
		return fmt.Errorf("it has %d orders, and %d were given", len(its), told)
	}
	for i, o := range its[:told] {
		if o != all[i] {
			return fmt.Errorf("order %d is %+v, and was %+v", i+1, o, all[i])
		}
	}
	before := mark{}
	for _, m := range after {
		if at <= m.entries {
			want := all[told:m.orders]
			if at == before.entries {
				want = nil // the step had not begun
			}
			for _, w := range want {
				if !strings.Contains(fmt.Sprint(bare(its[told:])), fmt.Sprint(bare([]order{w})[0])) {
					return fmt.Errorf("%+v was not given any more, and the heir gives %+v", w, its[told:])
				}
			}
			if len(its) != told+len(want) {
				return fmt.Errorf("the heir gives %+v, and not %+v", its[told:], want)
			}
			return nil
		}
		before = m
	}
	return nil
}

// bare leaves of orders what they do.
func bare(all []order) (out []rendezvous.Order) {
	for _, o := range all {
		o.N, o.Reason, o.Host = 0, "", ""
		out = append(out, o)
	}
	return out
}

// entries counts a ledger's.
func entries(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "launcher"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// inherited returns a job that has lived through a ledger.
func inherited(t *testing.T, key secret.Secret, end chan struct{}, text string) *job {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "launcher"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := lockLedger(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.file.Close()
	h, err := l.read(dir)
	if err != nil {
		t.Fatal(err)
	}
	j := discovering(t, key, end)
	j.record.ledger, j.links.resuming = l, make(chan struct{})
	j.launched(t, h)
	(&heir{job: j, head: h}).relive()
	close(j.links.resuming)
	return j
}
