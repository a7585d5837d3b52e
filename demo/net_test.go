package demo

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"hora/demo/digits"
)

// TestGradients compares Backward with finite differences of the loss, parameter by
// parameter, on a small network in which every layer kind occurs.
func TestGradients(t *testing.T) {
	widths := []int{7, 6, 5, 4}
	grads := make([]float32, ParamCount(widths))
	net, err := NewNet(widths, grads, 9, 3)
	if err != nil {
		t.Fatal(err)
	}
	draw := rand.New(rand.NewPCG(5, 6))
	images := make([]float32, 9*7)
	for i := range images {
		images[i] = draw.Float32()*2 - 1
	}
	labels := []uint8{0, 1, 2, 3, 3, 2, 1, 0, 2}
	scratch := make([]float32, 9*4)
	loss := func() float64 {
		return SoftmaxLoss(scratch, net.Forward(images, 9), labels, 9) / 9
	}
	loss()
	net.Backward(scratch)
	exact := slices.Clone(grads)
	const step = 3e-3
	var worst float64
	for i := range net.Params {
		was := net.Params[i]
		net.Params[i] = was + step
		up := loss()
		net.Params[i] = was - step
		down := loss()
		net.Params[i] = was
		numeric := (up - down) / (2 * step)
		worst = max(worst, math.Abs(numeric-float64(exact[i])))
	}
	// Second order in the step, single precision: a wrong term is off by 0.01 and more.
	if worst > 2e-3 {
		t.Errorf("gradient differs from finite differences by up to %.2g", worst)
	}
}

// trainTogether runs size replicas in lockstep, adding their gradients in rank order.
func trainTogether(t *testing.T, c Training, size, steps int) []*Trainer {
	t.Helper()
	train, _, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*Trainer, size)
	for r := range all {
		if all[r], err = NewTrainer(c, r, size, train, make([]float32, c.SharedCount())); err != nil {
			t.Fatal(err)
		}
	}
	var arrived, left sync.WaitGroup
	for n := range steps {
		arrived.Add(size)
		left.Add(size)
		total := make([]float32, len(all[0].shared))
		var once sync.Once
		for r := range all {
			go func() {
				defer left.Done()
				err := all[r].Step(n, func(g []float32) error {
					arrived.Done()
					arrived.Wait()
					once.Do(func() {
						for _, x := range all {
							for i, v := range x.shared {
								total[i] += v
							}
						}
					})
					copy(g, total)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
		}
		left.Wait()
	}
	return all
}

func TestRanksEqualOneProcess(t *testing.T) {
	c := Training{Epochs: 1}
	one := trainTogether(t, c, 1, 23)[0] // a whole epoch: its last batch is smaller
	for _, size := range []int{2, 3} {
		many := trainTogether(t, c, size, 23)
		for r := 1; r < size; r++ {
			if !slices.Equal(many[0].Net.Params, many[r].Net.Params) {
				t.Errorf("%d ranks: rank %d's parameters differ in bits from rank 0's", size, r)
			}
		}
		var worst float64
		for i, p := range many[0].Net.Params {
			worst = max(worst, math.Abs(float64(p-one.Net.Params[i])))
		}
		if worst > 2e-3 {
			t.Errorf("%d ranks: parameters differ from one process's by up to %g", size, worst)
		}
		if worst == 0 {
			t.Errorf("%d ranks: parameters equal one process's in every bit: were the batches shared at all?", size)
		}
		for r := range size {
			if math.Abs(many[r].Loss-one.Loss) > 1e-3*one.Loss {
				t.Errorf("%d ranks: rank %d tells a loss of %v in the last step, one process %v", size, r, many[r].Loss, one.Loss)
			}
		}
	}
}

func TestTrainingReachesItsAccuracy(t *testing.T) {
	train, test, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	seeds := uint64(10)
	if testing.Short() {
		seeds = 1
	}
	var mean float64
	for seed := uint64(1); seed <= seeds; seed++ {
		c := Training{Seed: seed}.WithDefaults()
		x, err := NewTrainer(c, 0, 1, train, make([]float32, c.SharedCount()))
		if err != nil {
			t.Fatal(err)
		}
		for n := range x.Steps() {
			if err := x.Step(n, func([]float32) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		got := x.Accuracy(test)
		mean += got / float64(seeds)
		if seed == 1 && got < 0.97 {
			t.Errorf("seed 1 reads %.2f %% of the test images, want 97 %%", got*100)
		}
	}
	t.Logf("mean accuracy of %d seeds: %.2f %%", seeds, mean*100)
	if mean < 0.965 {
		t.Errorf("mean accuracy of %d seeds is %.2f %%, want 96.5 %%", seeds, mean*100)
	}
}

// TestOptimizers takes three steps by hand, in double precision, beside each.
func TestOptimizers(t *testing.T) {
	grads := []float64{0.5, -0.25, 2}
	const rate = 0.125
	sgd := func(p float64) float64 {
		var velocity float64
		for _, g := range grads {
			velocity = 0.9*velocity + g
			p -= rate * velocity
		}
		return p
	}
	adam := func(p float64) float64 {
		var mean, square float64
		for i, g := range grads {
			n := float64(i + 1)
			mean, square = 0.9*mean+0.1*g, 0.999*square+0.001*g*g
			p -= rate * (mean / (1 - math.Pow(0.9, n))) / (math.Sqrt(square/(1-math.Pow(0.999, n))) + 1e-8)
		}
		return p
	}
	for name, want := range map[string]float64{"sgd": sgd(1), "adam": adam(1)} {
		params := []float32{0, 1}
		o := Optimizers[name].New(2, rate)
		for i, g := range grads {
			o.Step(params, []float32{0, float32(g)})
			if i == 0 { // what State shows is all there is: another one goes on from it
				next := Optimizers[name].New(2, rate)
				for j, x := range next.State() {
					copy(x, o.State()[j])
				}
				o = next
			}
		}
		if params[0] != 0 || math.Abs(float64(params[1])-want) > 1e-6 {
			t.Errorf("%s: %v after three steps, want 0 and %v", name, params, want)
		}
	}
}

func TestTrainersThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		Training
		ranks, room int
		want        string
	}{
		{Training{Batch: 4}, 5, Training{}.SharedCount(), "cannot be shared by 5 ranks"},
		{Training{Optimizer: "newton", Rate: 1}, 1, Training{}.SharedCount(), `no optimizer "newton"`},
		{Training{Widths: []int{64}}, 1, 1, "1 layer widths"},
		{Training{}, 1, 7, "room for 7 shared values"},
	} {
		_, err := NewTrainer(c.Training, 0, c.ranks, digits.Set{}, make([]float32, c.room))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c, err, c.want)
		}
	}
}

func TestOrderIsAPermutation(t *testing.T) {
	a, b := Order(1, 4, 100), Order(1, 4, 100)
	if !slices.Equal(a, b) {
		t.Error("the same seed and epoch gave two orders")
	}
	if slices.Equal(a, Order(1, 5, 100)) || slices.Equal(a, Order(2, 4, 100)) {
		t.Error("another epoch or seed gave the same order")
	}
	slices.Sort(a)
	for i, v := range a {
		if i != v {
			t.Fatalf("not a permutation: position %d holds %d", i, v)
		}
	}
	taken := 0
	for r := range 3 {
		from, to := Share(64, r, 3)
		if from != taken {
			t.Errorf("rank %d starts at %d, want %d", r, from, taken)
		}
		taken = to
	}
	if taken != 64 {
		t.Errorf("the ranks share %d of 64 images", taken)
	}
}
