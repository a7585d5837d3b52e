package client

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// TestReadLine: lines are read as encoding/json reads them, in the plain way where nothing is escaped.
func TestReadLine(t *testing.T) {
	at := time.Date(2026, 11, 26, 1, 2, 3, 456000789, time.UTC)
	for text, plain := range map[string]bool{
		"": true, "a line": true, `{"x"}`: false, "tab\there": false, "Größe": false, "back\\slash": false, "<b>&": false, "\x7f": false,
	} {
		for _, l := range []Line{
			{Attempt: 1, Number: 7, At: at, Rank: -1, Text: text},
			{Attempt: 12, Number: 1 << 60, At: at.Truncate(time.Second), Rank: 3, Err: true, Text: text},
		} {
			b, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			var got, fast Line
			if err := readLine(b, &got); err != nil || !reflect.DeepEqual(got, l) {
				t.Errorf("%s is %+v, %v", b, got, err)
			}
			if plainLine(b, &fast) != plain {
				t.Errorf("%s is read in the plain way: %v", b, !plain)
			}
		}
	}
	for _, b := range []string{
		`{"text":"x","attempt":1}`, `{"attempt":1,"number":2,"at":"2026-11-26T01:02:03Z","rank":0,"later":1,"text":"x"}`,
		`{"attempt": 1, "number": 2, "at": "2026-11-26T01:02:03Z", "rank": 0, "text": "x"}`,
	} {
		var got, want Line
		if err := json.Unmarshal([]byte(b), &want); err != nil {
			t.Fatal(err)
		}
		if err := readLine([]byte(b), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v", b, got, err)
		}
	}
	for _, b := range []string{``, `{`, `{"attempt":1,"number":2,"at":"2026","rank":0,"text":"x"}`, `{"attempt":1-2,"number":2`} {
		var got Line
		if err := readLine([]byte(b), &got); err == nil {
			t.Errorf("%s is %+v", b, got)
		}
	}
}
