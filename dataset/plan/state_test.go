package plan

import (
	"math"
	"strings"
	"testing"
)

func TestState(t *testing.T) {
	s := State{
		Version, strings.Repeat("0f", 16), math.MaxUint64, math.MaxUint64, math.MaxInt64, MaxLanes, MaxWindow, 1 << 31,
	}
	text := s.JSON()
	if len(text) >= 200 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	back, err := ParseState(text)
	if err != nil || *back != s {
		t.Errorf("%+v, %v", back, err)
	}
	for _, bad := range []string{
		"", "{}", `{"v":2}`, `{"v":1,"data":"x"}`, strings.Replace(string(text), "0f", "zz", 1),
		strings.Replace(string(text), `"lanes":1024`, `"lanes":0`, 1), strings.Replace(string(text), `"pos":`, `"pos":-`, 1),
	} {
		if _, err := ParseState([]byte(bad)); err == nil || !strings.Contains(err.Error(), "read state of data") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
