package digits

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

func TestLoad(t *testing.T) {
	train, test, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if train.Len() != Images-Tests || test.Len() != Tests {
		t.Fatalf("%d training and %d test images, want %d and %d", train.Len(), test.Len(), Images-Tests, Tests)
	}
	for _, s := range []Set{train, test} {
		if len(s.Pixels) != s.Len()*Pixels {
			t.Fatalf("%d pixels for %d images", len(s.Pixels), s.Len())
		}
		for i, v := range s.Pixels {
			if v < 0 || v > 1 {
				t.Fatalf("pixel %d is %v, want 0..1", i, v)
			}
		}
	}
}

func TestSplitIsStratified(t *testing.T) {
	train, test, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	var all, drawn [Classes]int
	for _, l := range train.Labels {
		all[l]++
	}
	for _, l := range test.Labels {
		all[l]++
		drawn[l]++
	}
	for c := range Classes {
		share := float64(drawn[c]) / float64(all[c])
		if share < 0.19 || share > 0.21 {
			t.Errorf("class %d: %.3f of its images are in the test set, want a fifth", c, share)
		}
	}
}

// TestSplitIsFixed holds the test set to the one that every accuracy in the
// documents was measured on.
func TestSplitIsFixed(t *testing.T) {
	const want = "21767fec92836bfd"
	_, test, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	sum.Write(test.Labels)
	for _, v := range test.Pixels {
		sum.Write([]byte{byte(v * 16)})
	}
	if got := hex.EncodeToString(sum.Sum(nil)[:8]); got != want {
		t.Errorf("test set's digest is %s, want %s: the split has changed", got, want)
	}
}
