package hora

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"hora/internal/secret"
)

// What strangers do before a rank has found the coordinator is told to the coordinator, once and with its number, and
// to the rank's own log only where none is found, or it has gone.
func TestStrangersBeforeTheCoordinatorIsFound(t *testing.T) {
	var log bytes.Buffer
	var heard []int
	away := false
	hear := func(r secret.Refused) bool {
		heard = append(heard, r.Count)
		return !away
	}
	r := newRefusals(slog.New(slog.NewTextHandler(&log, nil)))
	one := func() { r.Refuse("at a port", errors.New("no secret")) }
	r.seek()
	one()
	one()
	if log.Len() > 0 {
		t.Fatalf("the rank says itself: %s", log.String())
	}
	r.found(hear)
	one()
	r.seek() // the next life of the coordinator
	one()    // waits for its minute
	r.found(hear)
	r.leave()
	if log.Len() > 0 || len(heard) != 3 || heard[0] != 2 || heard[1] != 1 || heard[2] != 1 {
		t.Errorf("the coordinator heard %v, the log has %q", heard, log.String())
	}

	r = newRefusals(slog.New(slog.NewTextHandler(&log, nil)))
	r.seek()
	for range 3 {
		one()
	}
	r.leave()
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "refused 3 more connections") {
		t.Errorf("no coordinator was found, and the log has %q", log.String())
	}

	log.Reset()
	away = true
	r = newRefusals(slog.New(slog.NewTextHandler(&log, nil)))
	r.found(hear)
	one()
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("the coordinator has gone, and the log has %q", log.String())
	}
}
