package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hora/job"
	"hora/server/client"
	"hora/server/node"
)

// TestARestoredServerBeginsAnew: what ran when the backup was made is gone with its machine. Its attempt counts as
// lost, and what the next one writes is there from its first line on.
func TestARestoredServerBeginsAnew(t *testing.T) {
	t.Run("one that keeps its size", func(t *testing.T) { beginsAnew(t, 0) })
	t.Run("one that is told its size", func(t *testing.T) { beginsAnew(t, 1) })
}

func beginsAnew(t *testing.T, minNP int) {
	s := newSite(t, 2)
	const lines = 6
	d := shell(1, fmt.Sprintf(`if [ $HORA_RANK = 0 ]
then for i in $(seq %d)
do echo line $i of attempt $HORA_SERVER_ATTEMPT; sleep 0.02
done
fi
[ $HORA_SERVER_ATTEMPT -gt 1 ] || sleep 600`, lines))
	if minNP > 0 {
		d.Spec.NP, d.Spec.MinNP = 2, minNP
	}
	j := s.submit(d)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	have := 0
	_, _ = s.client.Follow(ctx, j.ID, client.Following{Rank: 0, Line: func(client.Line) {
		if have++; have == lines {
			cancel()
		}
	}})
	if have != lines {
		t.Fatalf("it wrote %d lines", have)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	if out, err := exec.Command(filepath.Join(s.bin, "horad"), "backup", s.dir, restored).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.kill()
	s.cmd = nil
	s.killKeeper("1.1")
	s = newSiteIn(t, restored, 2)
	j = s.until(j.ID, ended)
	j, err := s.client.Job(context.Background(), j.ID)
	if err != nil || j.State != job.Finished || len(j.Attempts) != 2 {
		t.Fatalf("%+v, %v", j, err)
	}
	if a := j.Attempts[0]; a.Outcome != client.Lost || a.Text != "nothing is left of it on its node" {
		t.Errorf("the first attempt: %+v", a)
	}
	if text := s.hora("job", fmt.Sprint(j.ID)).out; !strings.Contains(text, "nothing is left of it on its node") {
		t.Errorf("the story does not tell of it: %s", text)
	}
	var want, got []string
	for attempt := 1; attempt <= 2; attempt++ {
		for i := 1; i <= lines; i++ {
			want = append(want, fmt.Sprintf("line %d of attempt %d", i, attempt))
		}
	}
	err = s.client.Lines(context.Background(), j.ID, client.Following{Rank: 0}, func(l client.Line) {
		got = append(got, l.Text)
	})
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it wrote %q, %v", got, err)
	}
}

// TestARestoredServerEndsNobodysMachines: a copy that is started while the original runs leaves its machines alone,
// also those that do not come to it in the pool's time. horad restore says so before.
func TestARestoredServerEndsNobodysMachines(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	dir := t.TempDir()
	create := fmt.Sprintf(`touch %[1]s/at.$HORA_NODE; HOME=%[1]s setsid %[2]s/hora node --pool $HORA_POOL --name $HORA_NODE --slots 1 --dir %[1]s/$HORA_NODE >%[1]s/log 2>&1 </dev/null &`, dir, s.bin)
	remove := fmt.Sprintf(`echo $HORA_NODE >>%[1]s/gone; rm %[1]s/at.$HORA_NODE`, dir)
	list := fmt.Sprintf(`cd %s; ls at.* | sed s/^at.//`, dir)
	add := func(s *site, within string) {
		t.Helper()
		r := s.hora("pool", "add", "cloud", "--provider", "command", "--max", "1", "--within", within, "--idle", "1h",
			"--node", "cores=1", "--create", create, "--delete", remove, "--list", list)
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	add(s, "1h")
	gate := filepath.Join(dir, "gate")
	d := shell(1, "until [ -e "+gate+" ]; do sleep 0.05; done")
	d.Pool = "cloud"
	j := s.submit(d)
	s.until(j.ID, in(job.Running))
	saved, restored := filepath.Join(t.TempDir(), "saved"), filepath.Join(t.TempDir(), "restored")
	for _, args := range [][]string{{"backup", s.dir, saved}, {"restore", saved, restored}} {
		out, err := exec.Command(filepath.Join(s.bin, "horad"), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if said := strings.Contains(string(out), "pool cloud"); said != (args[0] == "restore") {
			t.Errorf("horad %s says %q", args[0], out)
		}
	}
	other := newSiteIn(t, restored, 1)
	warns := func(want string) {
		t.Helper()
		other.eventually("the pool says "+want, func() bool { return strings.Contains(other.hora("pool", "list").errs, want) })
	}
	warns("cloud-1 may come, and is not ended if it does not: this server's folder is a copy of another's")
	add(other, "1s")
	warns("list names cloud-1, which has not come in 1s: this server has not made it, and leaves it alone")
	if b, err := os.ReadFile(filepath.Join(dir, "gone")); err == nil && strings.Contains(string(b), "cloud-1\n") {
		t.Errorf("the copy has ended the original's machines: %q", b)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j = s.until(j.ID, ended)
	if j, err := s.client.Job(t.Context(), j.ID); err != nil || j.State != job.Finished || len(j.Attempts) != 1 {
		t.Errorf("the original's job: %+v, %v", j, err)
	}
	if r := s.hora("pool", "remove", "cloud"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("the original ends it", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "gone"))
		return strings.Contains(string(b), "cloud-1\n")
	})
}

// killKeeper ends the process that keeps an attempt, and waits for its end.
func (s *site) killKeeper(attempt string) {
	s.t.Helper()
	dir := filepath.Join(s.dir, "attempts", attempt)
	first, err := os.ReadFile(filepath.Join(dir, "outbox"))
	if err != nil {
		s.t.Fatal(err)
	}
	var begun node.Record
	if err := json.Unmarshal(first[:bytes.IndexByte(first, '\n')], &begun); err != nil || begun.Begun == nil {
		s.t.Fatalf("%s: %v", first, err)
	}
	if err := syscall.Kill(begun.Begun.Pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		s.t.Fatal(err)
	}
}

// TestAnOutboxThatLostItsEnd: with the machine's power goes what had not come to the disk. What stands before that is
// taken, and the attempt counts as lost.
func TestAnOutboxThatLostItsEnd(t *testing.T) {
	s := newSite(t, 1)
	j := s.submit(shell(1, `echo begins
[ $HORA_SERVER_ATTEMPT -gt 1 ] && exit 0
while [ ! -f outputs/go ]; do sleep 0.02; done
echo not taken yet
sleep 600`))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = s.client.Follow(ctx, j.ID, client.Following{Rank: 0, Line: func(client.Line) { cancel() }})
	s.kill()
	dir := filepath.Join(s.dir, "attempts", "1.1")
	if err := os.WriteFile(filepath.Join(dir, "work", "outputs", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	outbox := filepath.Join(dir, "outbox")
	s.eventually("the line is in the outbox", func() bool {
		b, err := os.ReadFile(outbox)
		return err == nil && bytes.Contains(b, []byte("not taken yet"))
	})
	s.killKeeper("1.1")
	f, err := os.OpenFile(outbox, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.WriteString(strings.Repeat("\x00", 5000) + `{"n":99,"at":"2026-11-22T10:00:00Z"}` + "\n")
	if err != nil {
		t.Fatal(err)
	}
	s.up()
	s.until(j.ID, ended)
	j, err = s.client.Job(context.Background(), j.ID)
	if err != nil || j.State != job.Finished || len(j.Attempts) != 2 || j.Attempts[0].Outcome != client.Lost {
		t.Errorf("%+v, %v", j, err)
	}
	if text := s.text(j.ID); strings.Count(text, "begins") != 2 || strings.Count(text, "not taken yet") != 1 {
		t.Errorf("it wrote %q", text)
	}
}

// TestARestoredServerMarksWhatIsGone: a node does not keep all that a job has written once its server has it. A server
// that was restored from an older copy says which lines are missing and goes on with the rest, and has the files of
// outputs/ that came meanwhile.
func TestARestoredServerMarksWhatIsGone(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := patientSite(t, "1m")
	s.joining("one", "lab")
	gate := filepath.Join(t.TempDir(), "gate")
	const lines = 3500
	d := shell(1, fmt.Sprintf(`echo first
until [ -e %[1]s1 ]; do sleep 0.02; done
echo middle >outputs/middle
awk 'BEGIN { for (i = 0; i < 9999; i++) s = s "x"; for (i = 0; i < %[2]d; i++) print i, s }'
until [ -e %[1]s2 ]; do echo tick; sleep 0.1; done
echo last`, gate, lines))
	d.Pool = "lab"
	j := s.submit(d)
	s.eventually("its first line is there", func() bool { return s.text(j.ID) == "[0]<stdout>:first\n" })
	restored := filepath.Join(t.TempDir(), "restored")
	if out, err := exec.Command(filepath.Join(s.bin, "horad"), "backup", s.dir, restored).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(gate+"1", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	box := filepath.Join(s.dir, "..", "one", node.AttemptsName, fmt.Sprintf("%d.1", j.ID))
	size := int64(0)
	s.eventually("the node has removed what the server has", func() bool {
		if _, err := os.Stat(filepath.Join(box, "outbox")); err == nil {
			return false
		}
		size = 0
		all, _ := filepath.Glob(filepath.Join(box, "outbox.*"))
		for _, name := range all {
			if info, err := os.Stat(name); err == nil {
				size += info.Size()
			}
		}
		return size < 21<<20
	})
	t.Logf("of %d bytes of output the node has %d", lines*10_000, size)
	s.kill()
	s.dir = restored
	s.up()
	if err := os.WriteFile(gate+"2", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j = s.until(j.ID, ended)
	if j, err := s.client.Job(t.Context(), j.ID); err != nil || j.State != job.Finished || len(j.Attempts) != 1 {
		t.Fatalf("%+v, %v", j, err)
	}
	var got []client.Line
	every := client.Following{Rank: -2}
	if err := s.client.Lines(t.Context(), j.ID, every, func(l client.Line) { got = append(got, l) }); err != nil {
		t.Fatal(err)
	}
	missing := uint64(0)
	if _, err := fmt.Sscanf(got[1].Text, "hora: lines 2 to %d are missing: this server was restored", &missing); err != nil ||
		got[0].Text != "first" || got[1].Number != missing || missing < 100 || got[len(got)-1].Text != "last" {
		t.Fatalf("it has %d lines: %q, %.200q, ... %q", len(got), got[0].Text, got[1].Text, got[len(got)-1].Text)
	}
	for i, l := range got[2:] {
		if l.Number != missing+uint64(i)+1 {
			t.Fatalf("line %d comes after line %d", l.Number, missing+uint64(i))
		}
	}
	if text := s.hora("job", fmt.Sprint(j.ID)).out; !strings.Contains(text, "lacks what the node has no more: lines of its output") {
		t.Errorf("its story does not say so: %s", text)
	}
	to := t.TempDir()
	s.hora("artifacts", fmt.Sprint(j.ID), "--to", to)
	if b, err := os.ReadFile(filepath.Join(to, "middle")); err != nil || string(b) != "middle\n" {
		t.Errorf("outputs/middle is %q, %v", b, err)
	}
}
