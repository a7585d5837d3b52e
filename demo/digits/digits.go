// Package digits holds the demo's data: 1,797 handwritten digits of 8×8 pixels with
// values 0 to 16, and their labels.
//
// It owns the embedded file and its split into training and test images; it never
// reads anything else and starts no goroutines.
package digits

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"math/rand/v2"
)

// About names the source and what a reader should know before trusting the accuracy.
const About = `Data: Optical Recognition of Handwritten Digits, test part.
E. Alpaydin, C. Kaynak (1998). UCI Machine Learning Repository.
doi:10.24432/C50P49. CC BY 4.0.
Repacked: pixels column by column, compressed; no value was changed.
The split into 1,437 training and 360 test images is random, so the same writers
stand on both sides: the accuracy says that training works, not how well
strangers' digits are read.`

// The shape of the data.
const (
	Pixels  = 64
	Classes = 10
	Images  = 1797
	Tests   = 360
)

// optdigits is the repacked file: for each pixel the values of all images, then all
// labels, as bytes. Alpaydin & Kaynak (1998), CC BY 4.0; see About.
//
//go:embed optdigits.gz
var optdigits []byte

// Set is a number of images with their labels. Pixels holds one image after another,
// scaled to 0..1.
type Set struct {
	Pixels []float32
	Labels []uint8
}

// Len is the number of images.
func (s Set) Len() int { return len(s.Labels) }

// Load unpacks the data and splits it: the test set is the first fifth of each class
// in an order drawn from PCG seed 1, fixed before anything was tuned.
func Load() (train, test Set, err error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(optdigits))
	if err != nil {
		return Set{}, Set{}, fmt.Errorf("unpack digits: %w", err)
	}
	columns, err := io.ReadAll(unpacked)
	if err != nil {
		return Set{}, Set{}, fmt.Errorf("unpack digits: %w", err)
	}
	if len(columns) != Images*(Pixels+1) {
		return Set{}, Set{}, fmt.Errorf("unpack digits: %d bytes, want %d", len(columns), Images*(Pixels+1))
	}
	labels := columns[Images*Pixels:]
	inTest := testImages(labels)
	for i := range Images {
		into := &train
		if inTest[i] {
			into = &test
		}
		for p := range Pixels {
			into.Pixels = append(into.Pixels, float32(columns[p*Images+i])/16)
		}
		into.Labels = append(into.Labels, labels[i])
	}
	return train, test, nil
}

// testImages draws Tests images so that each class keeps its share: what rounding
// leaves over goes to the classes in order.
func testImages(labels []byte) []bool {
	var ofClass [Classes]int
	for _, l := range labels {
		ofClass[l]++
	}
	var want [Classes]int
	left := Tests
	for c, n := range ofClass {
		want[c] = n * Tests / len(labels)
		left -= want[c]
	}
	for c := 0; left > 0; c, left = c+1, left-1 {
		want[c]++
	}
	chosen := make([]bool, len(labels))
	order := rand.New(rand.NewPCG(1, 1)).Perm(len(labels))
	for _, i := range order {
		if c := labels[i]; want[c] > 0 {
			want[c]--
			chosen[i] = true
		}
	}
	return chosen
}
