package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// names are those of all events, in JSON and wherever one is chosen by a word.
var names = map[string]Event{
	"operation":  &Operation{},
	"stall":      &Stall{},
	"mismatch":   &Mismatch{},
	"peer-lost":  &PeerLost{},
	"joined":     &Joined{},
	"left":       &Left{},
	"recovered":  &Recovered{},
	"agreed":     &Agreed{},
	"ready":      &Ready{},
	"started":    &Started{},
	"exited":     &Exited{},
	"opened":     &Opened{},
	"admitted":   &Admitted{},
	"restarted":  &Restarted{},
	"shrunk":     &Shrunk{},
	"moved":      &Moved{},
	"parked":     &Parked{},
	"grown":      &Grown{},
	"held":       &Held{},
	"hosts":      &Hosts{},
	"banned":     &Banned{},
	"progress":   &Progress{},
	"delay":      &Delay{},
	"warning":    &Warning{},
	"note":       &Note{},
	"told":       &Told{},
	"listening":  &Listening{},
	"registered": &Registered{},
}

var byType = func() map[reflect.Type]string {
	m := make(map[reflect.Type]string, len(names))
	for name, e := range names {
		m[reflect.TypeOf(e)] = name
	}
	return m
}()

// NameOf returns what kind of event e is, in one word: "restarted", "peer-lost". It is empty for a type of somebody else's.
func NameOf(e Event) string { return byType[reflect.TypeOf(e)] }

// Marshal writes an event as a JSON object: its name as "event", then its fields. Lengths of time are nanoseconds and
// their fields end in _ns. Shown on a terminal, it changes nothing there.
func Marshal(e Event) ([]byte, error) {
	name := NameOf(e)
	if name == "" {
		return nil, fmt.Errorf("write event as JSON: %T is not an event of this package", e)
	}
	fields, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write event %s as JSON: %w", name, err)
	}
	head := `{"event":"` + name + `"`
	if !bytes.Equal(fields, []byte("{}")) {
		head += ","
	}
	// What JSON leaves as it is and a terminal would act on, as JSON writes it with a number.
	return []byte(head + Visible(strings.ReplaceAll(string(fields[1:]), "\x7f", `\u007f`))), nil
}

// Unmarshal reads what Marshal wrote. Fields that it does not know are left out: a later version may have more.
func Unmarshal(b []byte) (Event, error) {
	var head struct {
		Event string `json:"event"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	kind, known := names[head.Event]
	if !known {
		return nil, fmt.Errorf("read event: there is none called %q", head.Event)
	}
	e := reflect.New(reflect.TypeOf(kind).Elem()).Interface().(Event)
	if err := json.Unmarshal(b, e); err != nil {
		return nil, fmt.Errorf("read event %s: %w", head.Event, err)
	}
	return e, nil
}

// An error in an event is its sentence in JSON.
type sentence struct {
	Error string `json:"error,omitempty"`
}

func sentenceOf(err error) (s sentence) {
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

func (s sentence) err() error {
	if s.Error == "" {
		return nil
	}
	return errors.New(s.Error)
}

type plainOperation Operation

// MarshalJSON writes the error as its sentence.
func (o *Operation) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		*plainOperation
		sentence
	}{(*plainOperation)(o), sentenceOf(o.Err)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (o *Operation) UnmarshalJSON(b []byte) error {
	s := struct {
		*plainOperation
		sentence
	}{plainOperation: (*plainOperation)(o)}
	err := json.Unmarshal(b, &s)
	o.Err = s.err()
	return err
}

type plainMismatch Mismatch

// MarshalJSON writes the error as its sentence.
func (m *Mismatch) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		*plainMismatch
		sentence
	}{(*plainMismatch)(m), sentenceOf(m.Err)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Mismatch) UnmarshalJSON(b []byte) error {
	s := struct {
		*plainMismatch
		sentence
	}{plainMismatch: (*plainMismatch)(m)}
	err := json.Unmarshal(b, &s)
	m.Err = s.err()
	return err
}
