package node

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// exitHost is what hora run exits with when a host is lost.
const exitHost = 69

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

// agent offers this node to the hub that this keeper runs. It ends with the hub, and is ended where it does not.
func (k *keeper) agent(hub []string) {
	self, err := os.Executable()
	if err != nil {
		return
	}
	c := exec.Command(self, "agent", "--hub", strings.Join(hub, ","), "--slots", strconv.Itoa(k.task.Part.Slots))
	errs := &sink{k: k, err: true}
	c.Stdout, c.Stderr = errs, errs
	if err := c.Start(); err != nil {
		_, _ = errs.Write([]byte("hora: start this node's part: " + err.Error() + "\n"))
		return
	}
	k.agents.Go(func() { _ = c.Wait() })
}
