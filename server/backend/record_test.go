package backend

import (
	"encoding/json"
	"math"
	"testing"
)

func TestNumbersThatAreNone(t *testing.T) {
	for _, v := range []float64{1.5, math.Inf(1), math.Inf(-1), math.NaN(), 0} {
		b, err := json.Marshal(Report{Metrics: map[string]Value{"a": Value(v)}})
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		if got := float64(r.Metrics["a"]); got != v && !(math.IsNaN(got) && math.IsNaN(v)) {
			t.Errorf("%v became %v by way of %s", v, got, b)
		}
	}
	var r Report
	if json.Unmarshal([]byte(`{"metrics": {"a": "seven"}}`), &r) == nil {
		t.Error("a word was taken for a number")
	}
}
