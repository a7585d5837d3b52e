package main

/*
#include "lib.h"
#include "nccl.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"hora"
)

// place is what a member tells the others about its GPU.
type place struct {
	Machine string `json:"machine"` // the same for all processes that could share a GPU
	Bus     string `json:"bus"`     // the GPU's place on it
	NCCL    int    `json:"nccl"`    // version, 0: none
	Why     string `json:"why"`     // why there is no NCCL
	Fault   string `json:"fault"`   // why there is no GPU
	Path    string `json:"path"`    // what the caller asked for
}

// report is what the caller learns about the path that was taken.
type report struct {
	Path    string `json:"path"` // nccl or staged
	NCCL    int    `json:"nccl"` // version, 0 where it is not used
	Why     string `json:"why"`  // why tensors pass through host memory
	Warning string `json:"warning"`
}

// open makes the group beside of, agrees on the path with its members and makes ready
// what the path needs.
func (g *gpu) open(of *group, label string, s *gpuSettings) (*report, error) {
	ctx := of.life.ctx
	opts := append([]hora.GroupOption{hora.Called(label)}, of.opts...)
	var err error
	if g.host, err = of.life.world.NewGroup(ctx, of.ranks, opts...); err != nil {
		return nil, err
	}
	mine := place{Path: s.Path}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		mine.Machine = strings.TrimSpace(string(boot))
	} else {
		mine.Machine = of.life.world.Host()
	}
	mine.Bus, g.context, err = loadCUDA(s.CUDA, s.Device)
	if err != nil {
		mine.Fault = err.Error()
	}
	if mine.NCCL, err = loadNCCL(s.NCCL); err != nil {
		mine.Why = err.Error()
	}
	places, err := exchange(ctx, g.host, &mine)
	if err != nil {
		return nil, err
	}
	r, err := choose(places, g.host)
	if err != nil {
		return nil, err
	}
	if err := onThread(g.index, g.context); err != nil {
		return nil, err
	}
	defer runtime.UnlockOSThread()
	if r.Path == "nccl" {
		if g.stream, err = newStream(g.index); err != nil {
			return nil, err
		}
		err = g.meetNCCL(ctx, s)
		if err != nil && s.Path == "auto" {
			r = &report{Path: "staged", Why: err.Error()}
			if g.host.Rank() == 0 {
				r.Warning = fmt.Sprintf("NCCL cannot be used, so tensors pass through host memory: %s", err)
			}
			err = nil
		}
	}
	if err == nil && r.Path == "staged" {
		err = g.makeLane(ctx)
	}
	return r, err
}

// exchange gives every member all members' places, in rank order.
func exchange(ctx context.Context, host *hora.Group, mine *place) ([]place, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := hora.Allgather(ctx, host, append(text, '\n'))
	if err != nil {
		return nil, err
	}
	var places []place
	for line := range strings.SplitSeq(strings.TrimSuffix(string(all), "\n"), "\n") {
		var p place
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return nil, fmt.Errorf("make GPU group: a member's answer cannot be read: %w", err)
		}
		places = append(places, p)
	}
	if len(places) != host.Size() {
		return nil, fmt.Errorf("make GPU group: %d of %d members answered", len(places), host.Size())
	}
	return places, nil
}

// choose decides as every member does: NCCL where each has a GPU of its own.
func choose(places []place, host *hora.Group) (*report, error) {
	seen := map[[2]string]int{}
	why, warning, must := "", "", false
	for r, p := range places {
		if p.Fault != "" {
			return nil, fmt.Errorf("make GPU group: rank %d: %s", r, p.Fault)
		}
		key := [2]string{p.Machine, p.Bus}
		first, shared := seen[key]
		if !shared {
			seen[key] = r
		}
		switch must = must || p.Path == "nccl"; {
		case why != "":
		case shared:
			why = fmt.Sprintf("ranks %d and %d share the GPU at %s", first, r, p.Bus)
			warning = why + ", which NCCL refuses, so tensors pass through host memory; give each rank a GPU of its own " +
				"(torch.cuda.set_device(local_rank)) to use NCCL"
		case p.NCCL == 0:
			why = fmt.Sprintf("rank %d: %s", r, p.Why)
		case p.NCCL != places[0].NCCL:
			why = fmt.Sprintf("rank 0 has NCCL %d and rank %d has %d", places[0].NCCL, r, p.NCCL)
			warning = why + ", so tensors pass through host memory; install one version everywhere to use NCCL"
		case p.Path == "staged":
			why = fmt.Sprintf("rank %d asked for it", r)
		}
	}
	if why == "" {
		return &report{Path: "nccl", NCCL: places[0].NCCL}, nil
	}
	if must {
		return nil, argument("make GPU group: NCCL was asked for and cannot be used: %s", why)
	}
	r := &report{Path: "staged", Why: why}
	if host.Rank() == 0 {
		r.Warning = warning
	}
	return r, nil
}

// meetNCCL makes the communicator on all members, or on none. Rank 0's number travels
// over the group's own broadcast.
func (g *gpu) meetNCCL(ctx context.Context, s *gpuSettings) error {
	limit := g.life.world.Config().StartTimeout
	if s.Timeout > 0 {
		limit = g.timeout
	}
	end := time.Now().Add(limit)
	halted := func() error {
		if limit > 0 && time.Now().After(end) {
			return &failure{C.HORA_DEADLINE, fmt.Sprintf("make NCCL group: the ranks' GPUs had not met within the timeout of %s; "+
				"look at NCCL_SOCKET_IFNAME and set NCCL_DEBUG=INFO", limit)}
		}
		return g.host.Err()
	}
	c := &ncclComm{why: g.failed}
	var id [C.HORA_NCCL_ID]byte
	var fault error
	if g.host.Rank() == 0 {
		id, fault = newID()
	}
	if err := hora.Broadcast(ctx, g.host, id[:], 0); err != nil {
		return err
	}
	if fault == nil && id == [C.HORA_NCCL_ID]byte{} {
		fault = fmt.Errorf("make NCCL group: rank 0 could not begin")
	}
	if fault == nil {
		if fault = c.init(g.host.Size(), g.host.Rank(), id); fault == nil {
			fault = c.settle("make NCCL group", halted)
		}
	}
	texts := ""
	if fault != nil {
		texts = fmt.Sprintf("rank %d: %s\n", g.host.Rank(), fault)
	}
	all, err := hora.Allgather(ctx, g.host, []byte(texts))
	if err == nil && len(all) > 0 {
		first, _, _ := strings.Cut(string(all), "\n")
		err = fmt.Errorf("%s", first)
	}
	if err != nil {
		c.abort()
		return err
	}
	g.nccl = c
	return nil
}

// makeLane makes the host memory that the worker's tensors pass through: memory that
// the ranks of this host share, so that what has come down need not be copied again.
// All members do so at the same place in their order.
func (g *gpu) makeLane(ctx context.Context) error {
	memory, err := g.host.Buffer(ctx, 2*slotsOfLane*g.bytes)
	if err != nil {
		return err
	}
	g.lane, err = newLane(g.index, &cudaQueue{gpu: g.index, halted: g.failed}, memory, slotsOfLane,
		func() { g.host.Free(memory) })
	return err
}
