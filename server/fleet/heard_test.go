package fleet

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/node"
)

// TestWhatRanksSaidBeforeTheirNodeWasLost: it is told of when the node is back, with when what says so began, until it
// is taken; of a node that was left nothing is told again.
func TestWhatRanksSaidBeforeTheirNodeWasLost(t *testing.T) {
	here := &node.Local{Dir: t.TempDir(), Nodes: []schedule.Node{{Name: "back", Pool: "p", Slots: 1}}}
	f := New(Config{Here: here, Patience: time.Hour, Beat: time.Hour})
	defer f.Close()
	folder := here.Folder(1, 1)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	began, box := time.Now().UTC().Add(-time.Hour), []byte(nil)
	for _, one := range []node.Record{
		{N: 1, At: began, Begun: &node.Begun{}},
		{N: 2, At: began, Lines: []backend.Line{{N: 1, Text: "a line"}}},
		{N: 3, At: began.Add(time.Second), Report: &backend.Report{Rank: 1, Step: 7}},
	} {
		b, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		box = append(append(box, b...), '\n')
	}
	for name, b := range map[string][]byte{"outbox": box, "lock": nil, "job.json": []byte("{}")} {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of, r := had{"p", "back", 1, 1}, f.runOf(key{1, 1})
	var told []backend.Record
	tries := 0
	r.take = func(all []backend.Record) error {
		if tries++; tries == 1 {
			return errors.New("the disk is full")
		}
		told = append(told, all...)
		return nil
	}
	r.parted["back"] = &backend.Parted{Node: "back", Exit: &backend.Exit{}}
	if r.remaining(of); tries != 0 {
		t.Errorf("it was left, and something is told: %+v", told)
	}
	r.parted["back"].Err = &backend.Lost{Node: "back", Patience: time.Minute}
	r.remaining(of)
	if tries != 2 || len(told) != 1 {
		t.Fatalf("it is told %d times: %+v", tries, told)
	}
	one := told[0]
	if one.N != 3 || one.From != "back" || !one.Since.Equal(began) || one.Report == nil || one.Report.Step != 7 {
		t.Errorf("it is told %+v", one)
	}
}

// TestWhenWhatRanksSayBegan: what stands for records that are gone says it too.
func TestWhenWhatRanksSayBegan(t *testing.T) {
	began := time.Now()
	who := ranks{node: "far"}
	all := who.said([]node.Record{
		{N: 40, At: began.Add(time.Hour), Gone: &backend.Gone{Begun: began}},
		{N: 41, Report: &backend.Report{Step: 1}},
		{N: 42, Lines: []backend.Line{{N: 1}}},
	})
	all = append(all, who.said([]node.Record{{N: 43, Report: &backend.Report{Step: 2}}})...)
	if len(all) != 3 || all[0].Gone == nil {
		t.Fatalf("they say %+v", all)
	}
	for i, n := range []uint64{40, 41, 43} {
		if all[i].N != n || !all[i].Since.Equal(began) || all[i].From != "far" {
			t.Errorf("they say %+v", all[i])
		}
	}
}
