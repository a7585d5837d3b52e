package kernel

import (
	"flag"
	"testing"
)

var featuresFlag = flag.String("features", "", "what Features must say")

func TestFeatures(t *testing.T) {
	t.Logf("vector instructions: %s", Features())
	if *featuresFlag != "" && Features() != *featuresFlag {
		t.Fatalf("features are %q, not %q", Features(), *featuresFlag)
	}
	for _, l := range Levels() {
		if l.String() == "" {
			t.Fatalf("level %d has no name", l)
		}
	}
	if Levels()[len(Levels())-1] != Best() {
		t.Fatalf("the best of %v is not %v", Levels(), Best())
	}
}
