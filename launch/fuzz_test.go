package launch

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/internal/wire"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// piped is messages as they come through a pipe.
func piped(messages ...[]byte) []byte { return slices.Concat(messages...) }

func packed(kind uint8, body []byte) []byte {
	b, at := wire.BeginMessage(nil, kind)
	return wire.EndMessage(append(b, body...), at)
}

// noCoordinator hears nothing.
type noCoordinator struct{}

func (noCoordinator) Exited(int, string, string, string) {}
func (noCoordinator) Drain(int, string, string)          {}
func (noCoordinator) Halted(int, rendezvous.Halt)        {}
func (noCoordinator) Absent(int, bool)                   {}
func (noCoordinator) Coming(int, string, bool, bool)     {}
func (noCoordinator) Close() error                       { return nil }

// spoken is a way by which an agent has said all that it ever will.
type spoken struct{ io.Reader }

func (spoken) Greet() (*reach.Host, error)                     { return &reach.Host{}, nil }
func (spoken) Write(p []byte) (int, error)                     { return len(p), nil }
func (spoken) Finish() error                                   { return nil }
func (spoken) Kill()                                           {}
func (spoken) Abandon()                                        {}
func (spoken) End(error) *reach.Lost                           { return &reach.Lost{} }
func (spoken) Close()                                          {}
func (spoken) Doing() (verb, share string)                     { return "", "" }
func (spoken) Doors(int, []string) []string                    { return nil }
func (spoken) Dig(_ context.Context, _, _ int) (string, error) { return "", nil }
func (spoken) Master() (int, error)                            { return 0, nil }
func (spoken) Stands([]string) []string                        { return nil }
func (spoken) Environ(all []string) []string                   { return all }

// FuzzAgentWords gives the launcher anything on the pipe from a host's agent: it is read
// to its end, and a rank of another host is not taken for one of this.
func FuzzAgentWords(f *testing.F) {
	number := func(n ...int64) (b []byte) {
		for _, v := range n {
			b = wire.AppendI64(b, v)
		}
		return b
	}
	output := wire.AppendBytes(wire.AppendU8(number(0), 1), []byte("text\n"))
	exited := wire.AppendString(wire.AppendBool(number(0, 1, 0), false), "7")
	f.Add(piped(packed(protocol.SayStarted, number(0, 77)), packed(protocol.SayOutput, output),
		packed(protocol.SayExited, exited), packed(protocol.SayDone, nil)))
	f.Add(piped(packed(protocol.SayFailed, wire.AppendString(number(127), "not found")),
		packed(protocol.SayWarning, []byte("w"))))
	killed := wire.AppendString(wire.AppendBool(number(1, 0, 9), true), "")
	f.Add(piped(packed(protocol.SayStarted, number(1, 77)), packed(protocol.SayExited, killed),
		packed(protocol.SayHalted, wire.AppendBool(number(1), true))))
	f.Add(piped(packed(protocol.SayHello, []byte(`{"version":"1"}`)), packed(protocol.SayProbed, []byte("[true]")),
		packed(protocol.SayNotice, []byte("soon")), packed(protocol.SayPong, nil)))
	f.Add(packed(protocol.SayOutput, number(1<<40)))
	f.Fuzz(func(t *testing.T, text []byte) {
		spec := &settings{Place: Place{Stdout: io.Discard, Stderr: io.Discard}}
		spec.defaults()
		j := newJob(spec)
		c := j.crew
		c.hosts, c.seats = []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}, []Seat{{Host: 0}, {Host: 1}}
		c.alive, c.begun = make([]bool, 2), map[int]time.Time{0: time.Now(), 1: time.Now()}
		j.mail.events, j.meeting.server = make(chan any), noCoordinator{}
		j.supply.roster = elastic.NewRoster(elastic.Supply{Size: 2, Hosts: c.hosts})
		var err error
		if j.links.out, err = newOutput(spec, 2); err != nil {
			t.Fatal(err)
		}
		l := &link{name: "a", called: "a", way: spoken{bytes.NewReader(text)}}
		l.writer = protocol.NewWriter(io.Discard, nil, true)
		j.links.all = []*link{l}
		j.links.hear(l)
		for end := false; !end; {
			switch e := (<-j.mail.events).(type) {
			case greeted:
				l.host = e.host
			case said:
				j.hear(e)
			case linkEnd:
				end = true
			}
		}
		l.reader.Wait()
		if c.alive[1] || j.supply.roster.Left() < 1 {
			t.Errorf("host a spoke for rank 1: alive %v, %d left", c.alive, j.supply.roster.Left())
		}
		close(j.mail.over)
		j.links.out.close()
		_ = l.writer.Close()
	})
}
