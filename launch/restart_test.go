package launch

import (
	"strings"
	"sync"
	"testing"

	"hora/elastic"
	"hora/event"
)

// heard keeps the events of a job.
type heard struct {
	mu   sync.Mutex
	said []string
}

func (h *heard) Operation(*event.Operation) {}

func (h *heard) Event(e event.Event) {
	h.mu.Lock()
	h.said = append(h.said, e.String())
	h.mu.Unlock()
}

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.said, "\n")
}

func TestAFailedWorkerIsStartedAgainWithinTheBudget(t *testing.T) {
	for _, c := range []struct {
		name             string
		restarts, policy int
		failures, code   int
		want             string
	}{
		{"enough", 2, int(elastic.Replace), 2, 0, "rank 1 on here: exit code 3: starting it again, 0 restarts left"},
		{"too few", 1, int(elastic.Replace), 2, 3, "rank 1 on here: exit code 3: starting it again, 0 restarts left"},
		{"others go on", 0, int(elastic.Continue), 1, 0, "rank 1 on here: exit code 3: the other goes on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h heard
			spec := testSpec(nil)
			spec.Dir = t.TempDir()
			spec.Place.Events = &event.Sink{}
			defer spec.Place.Events.Add(&h)()
			spec.Restarts, spec.OnLoss, spec.MinNP = c.restarts, elastic.Policy(c.policy), 1
			spec.Env = []string{"FAILURES=" + string(rune('0'+c.failures))}
			o, out, _ := script(t, spec, `echo "$RANK in epoch $HORA_EPOCH, elastic $HOROVOD_ELASTIC"
[ $RANK = 0 ] && exec sleep 0.5
echo x >>tries; [ $(wc -l <tries) -gt $FAILURES ] || exit 3`)
			if o.ExitCode() != c.code || !strings.Contains(h.text(), c.want) {
				t.Errorf("outcome %q, exit code %d; events\n%s", o.String(), o.ExitCode(), h.text())
			}
			if !strings.Contains(out, "1 in epoch 1, elastic 1") {
				t.Errorf("output %q", out)
			}
		})
	}
}

// TestTheSameReasonIsToldOnce: a worker that fails again and again with the same words has them told with its first
// failure and with the job's end.
func TestTheSameReasonIsToldOnce(t *testing.T) {
	var h heard
	spec := testSpec(nil)
	spec.Dir = t.TempDir()
	spec.Place.Events = &event.Sink{}
	defer spec.Place.Events.Add(&h)()
	spec.Restarts, spec.OnLoss = 3, elastic.Replace
	o, _, _ := script(t, spec, `[ $RANK = 0 ] && exec sleep 100
echo "ValueError: bad shape" >&2; exit 3`)
	const reason = "exit code 3: ValueError: bad shape"
	if want := "rank 1 on here: " + reason; o.String() != want || o.ExitCode() != 3 {
		t.Errorf("outcome %q, want %q", o.String(), want)
	}
	for want, n := range map[string]int{
		reason + ": starting it again, 2 restarts left":                 1,
		"it failed in the same way: starting it again, 1 restart left":  1,
		"it failed in the same way: starting it again, 0 restarts left": 1,
		"starting it again": 3,
	} {
		if strings.Count(h.text(), want) != n {
			t.Errorf("not %d times %q in\n%s", n, want, h.text())
		}
	}
}
