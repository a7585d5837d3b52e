package collective

import "testing"

// The quicker way is taken after the first calls, also when it changes later, and trials cost little.
func TestTheQuickerWayIsTaken(t *testing.T) {
	var p pace
	cost := [2]uint32{byPeek: 100, byParts: 60}
	var spent, least, told uint32
	var try, coming try
	for i := range 3000 {
		if i == 1000 {
			cost = [2]uint32{byPeek: 50, byParts: 100}
		}
		try, coming = coming, p.next()
		p.learn(told, told) // the headers of this call tell of the one before, and of the next
		p.ran = try
		if told = 0; try.timed {
			told = cost[try.way]
		}
		if i%1000 >= 2*trialEach {
			spent, least = spent+cost[try.way], least+min(cost[0], cost[1])
		}
		quicker, settled := cost[1] < cost[0], i > settling+2*tries+2 && i < 1000
		if settled && !try.timed && (try.way == byParts) != quicker {
			t.Fatalf("call %d goes way %d", i, try.way)
		}
	}
	if float64(spent) > 1.05*float64(least) {
		t.Errorf("%d where the quicker way alone takes %d", spent, least)
	}
}

// A way that is not clearly quicker, and times that did not come, change nothing.
func TestAWayIsKept(t *testing.T) {
	for _, peek := range []uint32{96, 104, 0} {
		var p pace
		told := uint32(0)
		var try, coming try
		for range 1000 {
			try, coming = coming, p.next()
			p.learn(told, 100)
			p.ran = try
			if told = peek; try.way == byParts {
				told = 100
			}
			if p.now != byPeek {
				t.Fatalf("peek takes %d and parts 100, and parts are taken", peek)
			}
		}
	}
}
