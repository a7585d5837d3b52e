package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// MixState is where a job stands in a mixture: equal on all ranks, whatever their
// number and batch size.
type MixState struct {
	Version  int      `json:"v"`
	Seed     uint64   `json:"seed"`
	Rows     int64    `json:"rows"` // of an epoch
	Epoch    uint64   `json:"epoch"`
	Position int64    `json:"pos"`
	Began    int64    `json:"began"` // the row of the whole sequence that the present weights began with
	Members  []Member `json:"mix"`
}

// Member is a mixture's member: which data, with which weight, and where it stands.
type Member struct {
	Name     string `json:"name"`
	Weight   string `json:"weight"`
	Data     string `json:"data"`
	Epoch    uint64 `json:"epoch"`
	Position int64  `json:"pos"`
	Lanes    int    `json:"lanes"`
	Window   int    `json:"window"`
	Part     int64  `json:"part,omitempty"` // as State's
}

// Row is the state's row of the whole sequence of epochs.
func (s *MixState) Row() int64 { return int64(s.Epoch)*s.Rows + s.Position }

// JSON is the state as it is saved: under 200 bytes, and under 200 more for each
// member whose name has up to 20.
func (s *MixState) JSON() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // numbers and texts
	}
	return text
}

// ParseMixState reads what JSON wrote.
func ParseMixState(text []byte) (*MixState, error) {
	s := &MixState{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read state of a mixture: %w; give what state_dict() answered", err)
	}
	switch {
	case len(s.Members) == 0 || len(s.Members) > MaxMembers:
		return nil, fmt.Errorf("read state of a mixture: it has %d members; give what state_dict() of a mixture answered", len(s.Members))
	case s.Version != Version:
		return nil, fmt.Errorf("read state of a mixture: it has version %d and this hora knows %d; go on with the version of hora that saved it, or begin anew", s.Version, Version)
	case s.Rows < 1 || s.Position < 0 || s.Position > s.Rows || s.Epoch >= uint64(math.MaxInt64/s.Rows),
		s.Began < 0 || s.Began > s.Row():
		return nil, fmt.Errorf("read state of a mixture: row %d of %d in epoch %d, with weights since row %d, cannot be; give what state_dict() answered", s.Position, s.Rows, s.Epoch, s.Began)
	}
	for _, m := range s.Members {
		data := len(m.Data) == 32 && len(bytes.Trim([]byte(m.Data), "0123456789abcdef")) == 0
		if !data || m.Position < 0 || m.Part < 0 ||
			m.Lanes < 1 || m.Lanes > MaxLanes || m.Window < 0 || m.Window > MaxWindow {
			return nil, fmt.Errorf("read state of a mixture: its member %q stands at row %d of data %q with %d lanes and a window of %d, which cannot be; give what state_dict() answered", m.Name, m.Position, m.Data, m.Lanes, m.Window)
		}
	}
	return s, nil
}
