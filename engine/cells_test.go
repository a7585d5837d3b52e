package engine

import (
	"errors"
	"strings"
	"testing"
)

// Submit takes no ticket when there are too few for all of its requests, and none is a refusal, not a crash.
func TestSubmitWithoutTicketsLeftKeepsNone(t *testing.T) {
	cells, err := newCells()
	if err != nil {
		t.Fatal(err)
	}
	g := &Group{cfg: Config{Name: "full"}, cells: cells}
	rs := make([]Request, 2)
	for left := maxCells - 1; left > 1; left-- {
		cells.take(1)
	}
	for _, left := range []int{1, 0} {
		if cells.left() != left {
			t.Fatalf("%d tickets are left, not %d", cells.left(), left)
		}
		tickets := make([]Ticket, 1)
		var refused *InvalidError
		if err := g.enqueue(rs, tickets, false); !errors.As(err, &refused) || !strings.Contains(err.Error(), "in flight in group full") {
			t.Fatalf("with %d tickets left: %v", left, err)
		}
		if cells.left() != left || tickets[0] != 0 {
			t.Errorf("a refusal kept %d tickets; %v", left-cells.left(), tickets)
		}
		cells.take(1)
	}
}
