package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hora/job/schedule"
	"hora/server/client"
)

// Listens is where a hub awaits agents, where an event says so.
func Listens(event json.RawMessage) []string {
	var e struct {
		Event string   `json:"event"`
		Addrs []string `json:"addrs"`
	}
	if json.Unmarshal(event, &e) != nil || e.Event != "listening" {
		return nil
	}
	return e.Addrs
}

// Stands is how an elastic gang stands, as its first node's keeper knows it.
type Stands struct {
	Hub    []string         `json:"hub"`             // where agents of further nodes are awaited
	Shares []schedule.Share `json:"shares"`          // what each node may have now
	Seats  map[string]int   `json:"seats,omitempty"` // how many ranks of the last epoch each node has; nil before the first
}

// seats is how many ranks each node has, where an event says so.
func seats(event json.RawMessage) map[string]int {
	var e struct {
		Event string `json:"event"`
		Hosts []struct {
			Name  string `json:"name"`
			Slots int    `json:"slots"`
		} `json:"hosts"`
	}
	if json.Unmarshal(event, &e) != nil || e.Event != "opened" {
		return nil
	}
	all := map[string]int{}
	for _, h := range e.Hosts {
		all[h.Name] = h.Slots
	}
	return all
}

// elastic says whether this keeper has the first part of a gang whose nodes come and go.
func (k *keeper) elastic() bool { return k.task.Part != nil && len(k.task.Part.Shares) > 0 }

// shares has the job use these slots from its next commit on, and says so when that is written.
func (k *keeper) shares(all []schedule.Share) {
	k.sharing.Lock()
	defer k.sharing.Unlock()
	if k.toEnd() || !k.elastic() || !k.limit(all) {
		return
	}
	k.stands.Shares = all
	k.stand()
}

// limit writes what the hub reads.
func (k *keeper) limit(all []schedule.Share) bool {
	var b []byte
	for _, s := range all {
		b = fmt.Appendf(b, "%s:%d\n", s.Node, s.Slots)
	}
	return k.find(b)
}

// stand says how the gang stands, once agents are awaited; with sharing held.
func (k *keeper) stand() {
	if len(k.stands.Hub) > 0 {
		one := k.stands
		_ = k.box.put(Record{Stands: &one})
	}
}

// learn takes from an event how the gang stands.
func (k *keeper) learn(event json.RawMessage) {
	addrs, ranks := Listens(event), seats(event)
	if addrs != nil && k.task.Part != nil {
		k.hub = addrs
	}
	if addrs == nil && ranks == nil || k.task.Part == nil {
		return
	}
	k.sharing.Lock()
	defer k.sharing.Unlock()
	if !k.elastic() {
		if addrs != nil {
			k.stands.Hub = addrs // the event tells this server, and stand the next one
		}
		return
	}
	if addrs != nil {
		k.stands.Hub = addrs
	}
	if ranks != nil {
		k.stands.Seats = ranks
	}
	k.stand()
}

// coming is how often the node of a folder had had a part before; not at all where none is told.
func coming(dir string) int {
	if p := partOf(dir); p != nil {
		return p.Coming
	}
	return 0
}

// spreads says whether what a folder keeps may have other nodes: a job that an earlier release started has one.
func spreads(dir string) bool { return partOf(dir) != nil }

func partOf(dir string) *Part {
	var t task
	if b, err := os.ReadFile(filepath.Join(dir, jobFile)); err != nil || json.Unmarshal(b, &t) != nil {
		return nil
	}
	return t.Part
}

// leaveWithin bounds how long the process of an earlier part may take to end.
const leaveWithin = 20 * time.Second

// renew makes the folder of a part anew, when the process that kept the one before has ended.
func (l *Local) renew(dir string, g Gang, n int, ended bool) error {
	if !ended {
		_ = tell(dir, order{Stop: string(client.Stopped)})
	}
	for end := time.Now().Add(leaveWithin); ; <-time.After(20 * time.Millisecond) {
		lock, err := takeLock(dir)
		if err == nil {
			defer lock.Close()
			if err := keepOutputs(dir); err != nil {
				return err
			}
			return l.make(dir, g, n)
		}
		if !errors.Is(err, ErrTaken) || time.Now().After(end) {
			return fmt.Errorf("end what was left here of job %d: %w", g.Job, err)
		}
	}
}

// keptFile is where the outputs/ of an earlier part are while its folder is made anew.
const keptFile = "kept"

// keepOutputs empties a folder but for what its part left in outputs/.
func keepOutputs(dir string) error {
	if err := os.Remove(filepath.Join(dir, jobFile)); err != nil {
		return err
	}
	kept := filepath.Join(dir, keptFile)
	err := os.Rename(filepath.Join(dir, WorkFolder, OutputsName), kept)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != keptFile && e.Name() != givenFile && e.Name() != lockFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// takeKept gives it to the new part, where there is an earlier one's.
func takeKept(dir string) (bool, error) {
	kept, outputs := filepath.Join(dir, keptFile), filepath.Join(dir, WorkFolder, OutputsName)
	if _, err := os.Lstat(kept); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err := os.RemoveAll(outputs); err != nil {
		return false, err
	}
	return true, os.Rename(kept, outputs)
}

// agentTries bounds how often the first node's agent is started again while the job goes on.
const agentTries = 3

// agent offers this node to the hub that this keeper runs. It ends with the hub, and is ended where it does not. That
// of an elastic job is started again: the others may go on meanwhile.
func (k *keeper) agent(hub []string) {
	self, err := os.Executable()
	if err != nil {
		return
	}
	errs := &sink{k: k, err: true}
	start := func() *exec.Cmd {
		c := exec.Command(self, k.task.Part.agent(hub)...)
		c.Stdout, c.Stderr = errs, errs
		if err := c.Start(); err != nil {
			_, _ = errs.Write([]byte("hora: start this node's part: " + err.Error() + "\n"))
			return nil
		}
		return c
	}
	c := start()
	if c == nil {
		if !k.elastic() {
			k.stop(client.Failure)
		}
		return
	}
	k.agents.Go(func() {
		for tries := 0; c != nil; tries++ {
			_ = c.Wait()
			if !k.elastic() {
				k.unless(k.ended, "this node's part of the job has ended by itself")
				return
			}
			if tries == agentTries {
				return
			}
			select {
			case <-k.ended:
				return
			case <-time.After(time.Second):
			}
			c = start()
		}
	})
}

// overWithin is how long a hub may take to see that an agent has gone.
const overWithin = 10 * time.Second

// unless ends the job, and says why, where its hub goes on and waits for who does not come any more.
func (k *keeper) unless(ended <-chan struct{}, text string) {
	select {
	case <-ended:
	case <-time.After(overWithin):
		_, _ = (&sink{k: k, err: true}).Write([]byte("hora: " + text + "\n"))
		k.stop(client.Failure)
	}
}

// agent are the arguments of hora that offer this node to a hub.
func (p *Part) agent(hub []string) []string {
	args := []string{"agent", "--hub", strings.Join(hub, ","), "--slots", strconv.Itoa(p.Slots)}
	if p.Node != "" {
		args = append(args, "--node", p.Node)
	}
	return args
}
