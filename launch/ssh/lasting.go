package ssh

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"hora/internal/wire"
	"hora/launch/local"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// StayFlag has what ssh starts on a host start an agent that outlives it and lead there: NAME,WAIT. The job's secret is
// then the first line of its standard input. ReturnFlag has it lead to such an agent, which is there: NAME.
const (
	StayFlag   = "--stay"
	ReturnFlag = "--return"
)

// Last has agents that are opened from now on wait for another launcher when this one dies.
func (r *Reach) Last(l reach.Last) { r.last = &l }

// LastingWay leads to such an agent, through a process that ssh starts on its host and that proves nothing itself.
type LastingWay struct {
	*Way
	proved bool // the agent has
	back   protocol.Back
}

// OpenLasting starts ssh to a host for such an agent, or for one that is there.
func (r *Reach) OpenLasting(host string) (*LastingWay, error) {
	name := r.agentName(r.opened)
	r.opened++
	words := fmt.Sprintf("--remote %s=%s,%v", StayFlag, name, r.last.Wait)
	if r.last.Resume {
		words = "--remote " + ReturnFlag + "=" + name
	}
	w, err := r.open(host, words)
	if err != nil {
		return nil, err
	}
	return &LastingWay{Way: w}, nil
}

// agentName returns by what name the job's launchers find one of its agents on a host. Nobody else can tell it before
// the agent is there.
func (r *Reach) agentName(n int) string {
	mac := hmac.New(sha256.New, r.last.Secret[:])
	mac.Write([]byte("agent " + strconv.Itoa(n)))
	return hex.EncodeToString(mac.Sum(nil)[:12])
}

// stream is the way as a connection on which the secret is proved.
type stream struct{ *Way }

func (s stream) Close() error { return s.in.Close() }

func (s stream) SetDeadline(t time.Time) error {
	return errors.Join(s.in.SetWriteDeadline(t), s.out.SetReadDeadline(t))
}

// Greet hears the remote script and copies the program there if it is asked to, as for any agent, proves the secret to
// the agent itself, and hears it.
func (w *LastingWay) Greet() (*reach.Host, error) {
	if err := w.greet(w.read); err != nil {
		return nil, err
	}
	last := w.reach.last
	if !last.Resume {
		if _, err := io.WriteString(w.in, last.Secret.Hex()+"\n"); err != nil {
			return nil, err
		}
	}
	end := time.Now().Add(max(w.reach.cfg.Start, time.Second))
	conn := stream{w.Way}
	back, err := local.Return(conn, last.Secret, w.host, end)
	if err != nil {
		return nil, err
	}
	w.back, w.proved = *back, true
	_ = conn.SetDeadline(end)
	kind, body, err := wire.ReadMessage(w.read, nil, protocol.Limit)
	_ = conn.SetDeadline(time.Time{})
	var g protocol.Greeting
	if err == nil && (kind != protocol.SayHello || json.Unmarshal(body, &g) != nil) {
		err = errors.New("its agent does not greet")
	}
	if err != nil {
		return nil, err
	}
	w.greeting = g
	return &reach.Host{
		Machine: strings.Join(g.Addrs, ","), Addrs: g.Addrs, Port: g.Port, Digs: "ssh",
		Silence: w.reach.cfg.Silence,
	}, nil
}

// Back returns what the agent has said of itself.
func (w *LastingWay) Back() *protocol.Back { return &w.back }

// Finish says that no other launcher will come; the agent ends the way.
func (w *LastingWay) Finish() error {
	if !w.proved {
		return w.in.Close()
	}
	_, err := w.in.Write(wire.AppendMessage(nil, protocol.CmdLeave, nil))
	return err
}

// leaveWithin is how long an agent that is given up may take to hear of it.
const leaveWithin = 2 * time.Second

// Kill tells the agent that nobody will come, or it would wait, and then ends ssh.
func (w *LastingWay) Kill() {
	if !w.proved || w.in.SetWriteDeadline(time.Now().Add(leaveWithin)) != nil || w.Finish() != nil {
		w.Way.Kill()
		return
	}
	time.AfterFunc(leaveWithin, w.Way.Kill)
}

// Abandon does the same: nobody knows whether the host is there.
func (w *LastingWay) Abandon() { w.Kill() }

// End waits for ssh.
func (w *LastingWay) End(err error) *reach.Lost {
	lost := w.Way.End(err)
	if w.reach.last.Resume && !w.proved {
		lost.Text = fmt.Sprintf("its agent cannot be reached any more (%s)", lost.Text)
		lost.Fault = protocol.Fault(protocol.ExitHost, "lost host %s: %s", w.host, lost.Text)
	}
	return lost
}

// Close gives back the pipes and closes the tunnel.
func (w *LastingWay) Close() {
	w.in.Close() // it may be closed
	w.Way.Close()
}
