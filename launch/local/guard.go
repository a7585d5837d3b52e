package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"hora/launch/machine"
	"hora/launch/protocol"
)

// guardFlag tells an agent which of its files the guard listens to: it holds that open as long as it lives.
const guardFlag = "--guard"

// guard is the launcher's end of one.
type guard struct {
	r, w    *os.File // a pipe: every launcher and agent has its end w open, the guard reads r
	process *os.Process
}

// openGuard makes what agents are given; the guard itself starts when the workers have been.
func (r *Reach) openGuard() error {
	if r.cfg.Guard == "" || r.guard != nil {
		return nil
	}
	rd, w, err := os.Pipe()
	if err != nil {
		return protocol.Fault(protocol.ExitSystem, "open pipe to the guard: %v: raise the limit with ulimit -n", err)
	}
	r.guard = &guard{r: rd, w: w}
	return nil
}

// say tells the guard something. Its pipe takes more than a job ever says.
func (g *guard) say(format string, v ...any) {
	if g != nil {
		fmt.Fprintf(g.w, format+"\n", v...)
	}
}

// startGuard starts it under a name of its own, and without the environment: neither whoever kills all processes called
// hora, nor whoever ends what carries a job's variables, takes it for one of them.
func (r *Reach) startGuard(warn func(string)) {
	g := r.guard
	if g == nil || g.process != nil {
		return
	}
	temp, err := filepath.Abs(r.cfg.Temp)
	if err != nil {
		temp = r.cfg.Temp
	}
	g.process, err = os.StartProcess(r.cfg.Guard, []string{"job-guard", "__guard", temp}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{g.r, nil, nil}, Sys: machine.Detached(),
	})
	if err != nil {
		warn(fmt.Sprintf("start the guard: %v: what workers start may stay when launcher and agent are killed together", err))
	}
}

// close ends the guard: nothing is left.
func (g *guard) close() {
	if g == nil {
		return
	}
	if g.process != nil {
		_ = g.process.Kill() // it may have been ended with all the rest
		_, _ = g.process.Wait()
	}
	g.w.Close()
	g.r.Close()
}

// Guard looks after one agent that has no launcher on its machine.
type Guard struct{ reach *Reach }

// StartGuard starts a guard. Whoever holds File open keeps it waiting; program is as in Config.
func StartGuard(program, temp string) (*Guard, error) {
	r := New(Config{Guard: program, Temp: temp})
	err := r.openGuard()
	if err == nil {
		r.startGuard(func(text string) { err = errors.New(text) })
	}
	return &Guard{r}, err
}

// File returns what the agent is to hold open too; nil where there is no guard.
func (g *Guard) File() *os.File {
	if g.reach.guard == nil {
		return nil
	}
	return g.reach.guard.w
}

// Agent tells it the agent's process.
func (g *Guard) Agent(pid int) { g.reach.guard.say("agent %d", pid) }

// Close ends it: nothing is left.
func (g *Guard) Close() { g.reach.Close() }
