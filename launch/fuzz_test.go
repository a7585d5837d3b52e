package launch

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/internal/wire"
)

// piped is messages as they come through a pipe.
func piped(messages ...queued) []byte {
	var out []byte
	for _, m := range messages {
		out = append(out, m.b...)
	}
	return out
}

func packed(kind uint8, body []byte) queued {
	b, at := wire.BeginMessage(nil, kind)
	return queued{b: wire.EndMessage(append(b, body...), at)}
}

// FuzzCommands gives an agent anything on the pipe from its launcher. What would act on
// this machine, plans, stops and probes, is left to encoding/json or only read.
func FuzzCommands(f *testing.F) {
	f.Add(piped(packed(cmdPing, nil), packed(cmdSecret, []byte("00ff")), packed(cmdSignal, wire.AppendI64(wire.AppendI64(nil, -1), 15))))
	f.Add(piped(packed(cmdWindDown, wire.AppendI64(nil, 5000)), packed(cmdStart, []byte(`{"rank":1}`))))
	f.Add(packed(cmdSignal, []byte{1}).b)
	f.Fuzz(func(t *testing.T, text []byte) {
		a := &agent{cfg: AgentConfig{In: bytes.NewReader(text)}, out: newPipeWriter(io.Discard, nil, false), events: make(chan any), procs: map[int]*proc{}}
		stop := make(chan struct{})
		go a.listen(stop)
		for {
			e := <-a.events
			if _, end := e.(hungUp); end {
				break
			}
			switch c := e.(command); c.kind {
			case cmdPlan, cmdStop, cmdProbe:
			default:
				a.obey(c)
			}
		}
		close(stop)
		if err := a.out.close(); err != nil {
			t.Error(err)
		}
	})
}

// noCoordinator hears nothing.
type noCoordinator struct{}

func (noCoordinator) Exited(int, string, string)  {}
func (noCoordinator) Drain(int, string)           {}
func (noCoordinator) Halted(int, rendezvous.Halt) {}
func (noCoordinator) Absent(int, bool)            {}
func (noCoordinator) Close() error                { return nil }

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
	exited := wire.AppendBool(number(0, 1, 0), false)
	f.Add(piped(packed(sayStarted, number(0, 77)), packed(sayOutput, output), packed(sayExited, exited), packed(sayDone, nil)))
	f.Add(piped(packed(sayFailed, wire.AppendString(number(-1, 127), "not found")), packed(sayWarning, []byte("w"))))
	f.Add(piped(packed(sayStarted, number(1, 77)), packed(sayExited, wire.AppendBool(number(1, 0, 9), true)), packed(sayHalted, wire.AppendBool(number(1), true))))
	f.Add(piped(packed(sayHello, []byte(`{"version":"1"}`)), packed(sayProbed, []byte("[true]")), packed(sayNotice, []byte("soon")), packed(sayPong, nil)))
	f.Add(packed(sayOutput, number(1<<40)).b)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		go func() {
			_, _ = w.Write(text)
			w.Close()
		}()
		spec := &Spec{Stdout: io.Discard, Stderr: io.Discard}
		spec.defaults()
		j := &job{
			spec: spec, hosts: []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}, seats: []Seat{{Host: 0}, {Host: 1}},
			events: make(chan any), over: make(chan struct{}), server: noCoordinator{}, alive: make([]bool, 2),
			begun: map[int]time.Time{0: time.Now(), 1: time.Now()}, condemn: map[int]string{},
			roster: elastic.NewRoster(elastic.Supply{Size: 2, Hosts: []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}}),
		}
		if j.out, err = newOutput(spec, 2); err != nil {
			t.Fatal(err)
		}
		l := &link{name: "a", local: true, out: r, writer: newPipeWriter(io.Discard, nil, false), process: gone.Process}
		j.links = []*link{l}
		l.reader.Add(1)
		go j.read(l)
		for end := false; !end; {
			switch e := (<-j.events).(type) {
			case said:
				j.hear(e)
			case linkEnd:
				end = true
			}
		}
		l.reader.Wait()
		if j.alive[1] || j.roster.Left() < 1 {
			t.Errorf("host a spoke for rank 1: alive %v, %d left", j.alive, j.roster.Left())
		}
		if j.final != nil {
			j.final.Stop()
		}
		close(j.over)
		j.out.close()
		_ = l.writer.close()
	})
}
