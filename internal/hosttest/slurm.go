package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Slurm makes the hosts the nodes of a Slurm cluster that the first of them controls, and returns when all are idle.
// Jobs are started there with srun. It skips the test where Slurm is not installed.
func (n *Net) Slurm() {
	n.t.Helper()
	for _, p := range []string{"munged", "slurmctld", "slurmd", "srun", "sinfo"} {
		if _, err := exec.LookPath(p); err != nil {
			if _, err := os.Stat("/usr/sbin/" + p); err != nil {
				n.t.Skipf("needs Slurm: there is no %s", p)
			}
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "hora-slurm-") // each host has its own /tmp
	if err != nil {
		n.t.Fatal(err)
	}
	n.slurm = dir
	n.t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{"state", "log", "munge"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	keep := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			n.t.Fatal(err)
		}
		return path
	}
	key := keep("munge.key", strings.Repeat("not a secret. ", 8))
	socket := filepath.Join(dir, "munge/socket")
	head := n.Hosts[0]
	conf := fmt.Sprintf(`ClusterName=test
SlurmctldHost=%[1]s(%[2]s)
SlurmUser=root
AuthInfo=socket=%[3]s
StateSaveLocation=%[4]s/state
SlurmdSpoolDir=%[4]s/spool.%%n
SlurmctldPidFile=%[4]s/slurmctld.pid
SlurmdPidFile=%[4]s/slurmd.%%n.pid
SlurmctldLogFile=%[4]s/log/slurmctld
SlurmdLogFile=%[4]s/log/slurmd.%%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
`, head.Name, head.Addr, socket, dir)
	for _, h := range n.Hosts {
		conf += fmt.Sprintf("NodeName=%s NodeAddr=%s CPUs=8 State=UNKNOWN\n", h.Name, h.Addr)
	}
	path := keep("slurm.conf", conf+"PartitionName=all Nodes=ALL Default=YES State=UP\n")
	for _, h := range n.Hosts {
		n.run(h.pid, "sh", "-c", "mkdir -p /run/pmix && mount -t tmpfs none /etc/slurm && ln -s "+path+" /etc/slurm/slurm.conf")
	}
	// One munged serves all: its socket is a file that every host sees.
	n.daemon(head, "munged", "--foreground", "--force", "--key-file="+key, "--socket="+socket,
		"--pid-file="+dir+"/munge/pid", "--log-file="+dir+"/munge/log", "--seed-file="+dir+"/munge/seed")
	n.until(head, "munge", "test -S "+socket)
	n.daemon(head, "slurmctld", "-D")
	for _, h := range n.Hosts {
		n.daemon(h, "slurmd", "-D", "-N", h.Name)
	}
	n.until(head, "Slurm", fmt.Sprintf("[ $(sinfo -h -N -t idle -o %%N | wc -l) = %d ]", len(n.Hosts)))
}

// daemon starts a program on a host that runs until the test ends.
func (n *Net) daemon(h *Host, argv ...string) {
	n.t.Helper()
	cmd := h.Command(n.t.Context(), argv...)
	cmd.Cancel = nil // start ends it
	n.start(cmd)
}

// until waits on a host for a shell condition.
func (n *Net) until(h *Host, what, condition string) {
	n.t.Helper()
	code, out, errs := h.Output(60*time.Second, "sh", "-c",
		"i=0; until "+condition+"; do i=$((i+1)); [ $i -gt 200 ] && exit 1; sleep 0.1; done")
	if code != 0 {
		logs, _ := filepath.Glob(filepath.Join(n.slurm, "log/*"))
		for _, l := range logs {
			b, _ := os.ReadFile(l)
			n.t.Logf("%s:\n%s", l, b)
		}
		n.t.Fatalf("%s does not come up: %s%s", what, out, errs)
	}
}
