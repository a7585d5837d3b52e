package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Version is the version of the arithmetic: two plans of one version and order are equal.
const Version = 1

// State is where a job stands in its data: equal on all ranks, whatever their number
// and batch size. Position counts the rows of the epoch that were handed out.
type State struct {
	Version  int    `json:"v"`
	Data     string `json:"data"` // fingerprint of the files, 32 hexadecimal digits
	Seed     uint64 `json:"seed"`
	Epoch    uint64 `json:"epoch"`
	Position int64  `json:"pos"`
	Lanes    int    `json:"lanes"`
	Window   int    `json:"window"`
	Part     int64  `json:"part,omitempty"` // rows of a block where row groups are cut
}

// Order is the order of the state's epoch.
func (s *State) Order() Order { return Order{s.Seed, s.Epoch, s.Lanes, s.Window} }

// JSON is the state as it is saved: under 200 bytes.
func (s *State) JSON() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // numbers and a text
	}
	return text
}

// ParseState reads what JSON wrote.
func ParseState(text []byte) (*State, error) {
	s := &State{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read state of data: %w; give what state_dict() answered", err)
	}
	switch {
	case s.Version != Version:
		return nil, fmt.Errorf("read state of data: it has version %d and this hora knows %d; go on with the version of hora that saved it, or begin the epoch anew", s.Version, Version)
	case len(s.Data) != 32 || len(bytes.Trim([]byte(s.Data), "0123456789abcdef")) > 0:
		return nil, fmt.Errorf("read state of data: %q is no fingerprint; give what state_dict() answered", s.Data)
	case s.Position < 0 || s.Lanes < 1 || s.Lanes > MaxLanes || s.Window < 0 || s.Window > MaxWindow || s.Part < 0:
		return nil, fmt.Errorf("read state of data: position %d, %d lanes, window %d cannot be; give what state_dict() answered", s.Position, s.Lanes, s.Window)
	}
	return s, nil
}
