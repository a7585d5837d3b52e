package client

import (
	"reflect"
	"testing"
	"time"

	"hora/job"
)

// TestProcessesAreCompared: a job that says nothing of them has one, and one on whole nodes as many as it has there.
func TestProcessesAreCompared(t *testing.T) {
	jobs := []Job{
		{Document: Document{Spec: job.Spec{NP: 2}}},
		{},
		{Document: Document{Nodes: 2, PerNode: 3}},
		{Document: Document{Nodes: 2}},
	}
	v, err := Compare(jobs, make([][]Metric, len(jobs)), time.Now())
	if want := []any{2.0, 1.0, 6.0, 2.0}; err != nil || !reflect.DeepEqual(v.Differs["np"], want) {
		t.Errorf("np differs by %v, and should by %v; %v", v.Differs["np"], want, err)
	}
	v, err = Compare([]Job{{}, {Document: Document{Spec: job.Spec{NP: 1}}}}, make([][]Metric, 2), time.Now())
	if err != nil || v.Differs["np"] != nil {
		t.Errorf("two of one process differ by %v, %v", v.Differs["np"], err)
	}
}
