package main

/*
#include "hora_data.h"
#include "lib.h"
*/
import "C"

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
	"unsafe"

	"hora/dataset"
	order "hora/dataset/plan"
)

// datasets are the data and batches that callers hold, by number.
type datasets struct {
	mu      sync.Mutex // guards what follows
	last    uint64
	open    map[uint64]*data
	batches map[uint64]*dataset.Batch
}

// rows is what is opened: one table, or a mixture.
type rows interface {
	Read(dataset.Walk) (*dataset.Reader, error)
	Rows() int64
	Files() int
	Blocks() int
	Mixing() string
	Fields() []dataset.Field
	List() []dataset.Block
	Skipped() []dataset.Skipped
	Remember()
	Told() string
	Close()
}

// data is one opened set with the reader of its present epoch.
type data struct {
	mu       sync.Mutex // held over a call, 50 ms at most: calls on one number come one after another
	set      rows
	reader   *dataset.Reader
	epoch    uint64 // where what was handed out ends
	position int64
}

var errNoData = &failure{C.HORA_CLOSED, "read data: they are closed; open them again"}

func (d *datasets) find(handle uint64) (*data, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.open[handle]; one != nil {
		return one, nil
	}
	return nil, errNoData
}

// dataAction is the JSON of hora_action's data_….
type dataAction struct {
	Action string `json:"action"`
	Data   uint64 `json:"data"`
	// of data_open
	Source   []string              `json:"source"`
	Fields   []dataset.Want        `json:"fields"`
	Ragged   []string              `json:"ragged"`
	Nulls    map[string]any        `json:"nulls"`
	Shuffle  string                `json:"shuffle"`
	Seed     uint64                `json:"seed"`
	Memory   int64                 `json:"memory"`
	Threads  int                   `json:"threads"`
	Filter   [][]dataset.Condition `json:"filter"`
	Skip     bool                  `json:"skip"`
	Only     []int                 `json:"only"`
	Readable bool                  `json:"readable"`
	Env      map[string]string     `json:"env"` // for storage that needs keys
	Local    int                   `json:"local_rank"`
	Locals   int                   `json:"local_size"`
	Job      string                `json:"job"`
	Mix      []dataset.Part        `json:"mix"` // a mixture of these; then no Source
	Rows     int64                 `json:"rows"`
	Origin   string                `json:"origin"`
	// of data_seek
	Epoch    uint64 `json:"epoch"`
	Position int64  `json:"position"`
	Rank     int    `json:"rank"`
	Size     int    `json:"size"`
	Batch    int64  `json:"batch"`
	Last     string `json:"last"`
	Blocks   []int  `json:"blocks"` // row groups that are read instead, a batch each
	// of data_state: take this one over, or answer that of Epoch and Position
	State json.RawMessage `json:"state"`
	At    bool            `json:"at"`
	// of data_weigh, with Epoch and Position
	Weights []string `json:"weights"`
}

// act does what hora_action was asked for; each answer is a JSON text in the outcome's
// memory.
func (d *datasets) act(settings string) C.int64_t {
	var a dataAction
	parser := json.NewDecoder(bytes.NewReader([]byte(settings)))
	parser.UseNumber() // a null may become any 64-bit number
	if err := parser.Decode(&a); err != nil {
		return errOut(argument("act: settings are not JSON: %v", err))
	}
	if a.Action == "data_open" {
		return the.background(func(o *outcome) error { return d.opened(&a, o) })
	}
	if a.Action == "data_close" {
		d.mu.Lock()
		one := d.open[a.Data]
		delete(d.open, a.Data)
		d.mu.Unlock()
		if one != nil {
			go one.close()
		}
		return 0
	}
	one, err := d.find(a.Data)
	if err != nil {
		return errOut(err)
	}
	return the.background(func(o *outcome) error {
		one.mu.Lock()
		defer one.mu.Unlock()
		switch a.Action {
		case "data_seek":
			return one.seek(&a, o)
		case "data_state":
			return one.state(&a, o)
		case "data_told":
			return o.text(one.set.Told())
		case "data_remember":
			one.set.Remember()
			return nil
		case "data_weigh":
			return one.weigh(&a)
		case "data_why":
			if one.reader == nil {
				return o.text(dataset.Times{})
			}
			return o.text(one.reader.Times())
		case "data_blocks":
			return o.text(one.set.List())
		case "data_skipped":
			return o.text(one.set.Skipped())
		}
		return argument("act: there is no action %q; use data_open, data_blocks, data_seek, data_state, data_remember, data_weigh, data_skipped, data_told, data_why or data_close", a.Action)
	})
}

// text leaves a JSON text as the outcome's memory.
func (o *outcome) text(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	at := the.memory.allocate(len(text))
	if at == nil {
		return &failure{C.HORA_FAILED, "act: there is no memory"}
	}
	copy(unsafe.Slice((*byte)(at), len(text)), text)
	o.memory = uint64(uintptr(at))
	return nil
}

var shuffles = map[string]dataset.Shuffle{"": dataset.Window, "window": dataset.Window, "full": dataset.Full, "none": dataset.None}

func (d *datasets) opened(a *dataAction, o *outcome) error {
	shuffle, known := shuffles[a.Shuffle]
	if !known {
		return argument("open data: there is no shuffle %q; use window, full or none", a.Shuffle)
	}
	if len(a.Source) == 0 && len(a.Mix) == 0 {
		return argument("open data: the list of sources is empty; name a file or a folder")
	}
	cfg := dataset.Config{
		Source: a.Source, Fields: a.Fields, Ragged: a.Ragged, Nulls: a.Nulls, Shuffle: shuffle, Seed: a.Seed,
		Memory: a.Memory, Threads: a.Threads,
		Filter: a.Filter, Only: a.Only, Readable: a.Readable, Skip: a.Skip,
		LocalRank: a.Local, LocalSize: a.Locals, Job: a.Job,
		Lookup: func(name string) string { return a.Env[name] },
	}
	var set rows
	var err error
	if len(a.Mix) > 0 {
		set, err = dataset.OpenMix(context.Background(), cfg, a.Mix, a.Rows, a.Origin)
	} else {
		set, err = dataset.Open(context.Background(), cfg)
	}
	if err != nil {
		return err
	}
	one := &data{set: set}
	state, err := one.at(0, 0)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open, d.batches = map[uint64]*data{}, map[uint64]*dataset.Batch{}
	}
	d.last++
	d.open[d.last] = one
	o.value = int64(d.last)
	var left []string // columns that are not read, and why
	if table, is := set.(*dataset.Set); is {
		left = table.Left()
	}
	return o.text(map[string]any{
		"rows": set.Rows(), "files": set.Files(), "blocks": set.Blocks(), "mixing": set.Mixing(), "fields": set.Fields(), "left": left,
		"state": state,
	})
}

// at returns the state at a position of an epoch.
func (d *data) at(epoch uint64, position int64) (any, error) {
	if mix, is := d.set.(*dataset.Mixed); is {
		return mix.State(epoch, position)
	}
	return d.set.(*dataset.Set).State(epoch, position), nil
}

// weigh gives a mixture's members other weights from a position on; it is read anew from there.
func (d *data) weigh(a *dataAction) error {
	mix, is := d.set.(*dataset.Mixed)
	if !is {
		return argument("weigh a mixture: these data are none; open them with mix()")
	}
	if err := mix.Weigh(a.Weights, a.Epoch, a.Position); err != nil {
		return err
	}
	d.stop()
	d.epoch, d.position = a.Epoch, a.Position
	return nil
}

// seek begins to read from a position.
func (d *data) seek(a *dataAction, o *outcome) error {
	last, err := order.ParseLast(a.Last)
	if err != nil {
		return err
	}
	d.stop()
	d.reader, err = d.set.Read(dataset.Walk{
		Epoch: a.Epoch, Position: a.Position, Rank: a.Rank, Size: a.Size,
		Batch: a.Batch, Last: last, Blocks: a.Blocks,
	})
	if err != nil {
		return err
	}
	d.epoch, d.position = a.Epoch, a.Position
	return o.text(d.reader.Layout())
}

// state takes a state over where one is given, and answers where the data stand.
func (d *data) state(a *dataAction, o *outcome) error {
	if len(a.State) > 0 {
		d.stop() // it reads the order that is about to change
		epoch, position, err := d.resume(a.State)
		if err != nil {
			return err
		}
		d.epoch, d.position = epoch, position
	}
	epoch, position := d.epoch, d.position
	if a.At {
		epoch, position = a.Epoch, a.Position
	}
	state, err := d.at(epoch, position)
	if err != nil {
		return err
	}
	return o.text(state)
}

// resume takes a state over.
func (d *data) resume(text []byte) (epoch uint64, position int64, err error) {
	if mix, is := d.set.(*dataset.Mixed); is {
		s, err := order.ParseMixState(text)
		if err != nil {
			return 0, 0, err
		}
		return s.Epoch, s.Position, mix.Resume(s)
	}
	s, err := order.ParseState(text)
	if err != nil {
		return 0, 0, err
	}
	return s.Epoch, s.Position, d.set.(*dataset.Set).Resume(s)
}

func (d *data) stop() {
	if d.reader != nil {
		d.reader.Close()
		d.reader = nil
	}
}

func (d *data) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
	d.set.Close()
}

// slice is how long a call may stay.
const slice = 50 * time.Millisecond

//export horaDataNext
func horaDataNext(handle C.uint64_t, timeout C.uint32_t, out *C.hora_batch) (answer C.int32_t) {
	defer guard(&answer)
	if uintptr(out.size) < C.sizeof_hora_batch {
		return C.int32_t(errOut(argument("read data: the batch's structure has %d bytes, this library needs %d", out.size, C.sizeof_hora_batch)))
	}
	d, err := the.data.find(uint64(handle))
	if err != nil {
		return C.int32_t(errOut(err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reader == nil {
		return C.int32_t(errOut(argument("read data: nothing says where to begin; seek first")))
	}
	b, err := d.reader.Next(min(slice, time.Duration(timeout)*time.Millisecond))
	switch {
	case errors.Is(err, dataset.ErrNotYet):
		return 1
	case errors.Is(err, io.EOF):
		d.epoch, d.position = d.reader.After()
		return 2
	case err != nil:
		return C.int32_t(errOut(err))
	}
	d.epoch, d.position = b.Epoch, b.Position
	*out = C.hora_batch{size: C.sizeof_hora_batch, rows: C.uint32_t(b.Rows), bytes: C.uint64_t(len(b.Memory()))}
	*(*uintptr)(unsafe.Pointer(&out.memory)) = uintptr(unsafe.Pointer(unsafe.SliceData(b.Memory()))) // mapped, not Go's
	the.data.mu.Lock()
	the.data.last++
	the.data.batches[the.data.last] = b
	out.batch = C.uint64_t(the.data.last)
	the.data.mu.Unlock()
	return 0
}

//export horaDataRelease
func horaDataRelease(handle C.uint64_t) (answer C.int32_t) {
	defer guard(&answer)
	the.data.mu.Lock()
	b := the.data.batches[uint64(handle)]
	delete(the.data.batches, uint64(handle))
	the.data.mu.Unlock()
	if b != nil {
		b.Release()
	}
	return 0
}
