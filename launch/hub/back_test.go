package hub

import (
	"net"
	"testing"

	"hora/internal/wire"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// back is what an agent says that comes back from a killed hub, which had called it so.
func back(name string) protocol.Greeting {
	b := &protocol.Back{From: 1, Planned: true, Name: name, Host: name}
	return protocol.Greeting{Version: protocol.Version, Name: name, ID: name, Back: b}
}

// dismissed wants an agent to hear that the job goes on without it.
func dismissed(t *testing.T, conn net.Conn) {
	t.Helper()
	kind, body, err := wire.ReadMessage(conn, nil, protocol.Limit)
	d := wire.NewDecoder(body)
	code, text := d.Int(0, 255), d.String(1000)
	if err != nil || kind != protocol.CmdOver || code != protocol.ExitHost || text != goneOn {
		t.Errorf("%v, kind %d: %d %q", err, kind, code, text)
	}
	conn.Close()
}

// TestWhoComesBack: an heir takes each agent of the killed hub once, and only while it awaits them. No other one is
// listed, and each hears that it is lost to the job.
func TestWhoComesBack(t *testing.T) {
	h := open(t, Config{Heir: true})
	h.Last(reach.Last{Resume: true})
	h.come(t, back("a"))
	h.until(t, "a:1 called a")
	dismissed(t, h.come(t, back("a")))
	way, err := h.Open("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := way.Greet(); err != nil {
		t.Error(err)
	}
	unasked := h.come(t, back("b")) // the killed hub had lost it
	h.awaitCount(t, 2)
	h.Last(reach.Last{})
	dismissed(t, unasked)
	dismissed(t, h.come(t, back("c")))
	way.Kill()
	dismissed(t, h.come(t, back("a")))
	h.come(t, protocol.Greeting{Version: protocol.Version, Name: "new", ID: "n"})
	h.awaitCount(t, 2)
	if _, err := h.awaits("b").Greet(); err == nil {
		t.Error("an agent is awaited that may not come back")
	}
}

// TestAnAgentThatIsGivenUpIsNotTaken: neither one that has come by then nor one that comes later, and nothing waits for
// it any more.
func TestAnAgentThatIsGivenUpIsNotTaken(t *testing.T) {
	h := open(t, Config{Heir: true})
	h.Last(reach.Last{Resume: true})
	early := h.awaits("a")
	early.Abandon()
	h.come(t, back("a"))
	h.awaitCount(t, 1)
	late := h.awaits("b")
	greeted := make(chan error, 1)
	go func() {
		_, err := late.Greet()
		greeted <- err
	}()
	late.Kill()
	if _, err := late.Write(nil); err == nil {
		t.Error("something was written to nobody")
	}
	h.come(t, back("b"))
	if err := <-greeted; err == nil {
		t.Error("an agent was taken after it had been given up")
	}
	if _, err := early.Greet(); err == nil {
		t.Error("an agent was taken that had been given up before it came")
	}
}
