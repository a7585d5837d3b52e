package launch

import (
	"regexp"
	"slices"
	"strings"
)

// old is the last line of a Python program that asked TensorFlow or Keras for a name that it has not.
var old = regexp.MustCompile(`^(AttributeError: module '(tensorflow|keras)[\w.]*' has no attribute |` +
	`AttributeError: '\w+' object has no attribute '(lr|fit_generator|evaluate_generator|predict_generator)'|` +
	`ImportError: cannot import name '\w+' from '(tensorflow|keras)[\w.]*'|` +
	`ModuleNotFoundError: No module named '(tensorflow\.)?keras\.|` +
	`ValueError: Argument\(s\) not recognized: \{'(lr|decay)': )`)

// advised are failures of frameworks that say nothing of what to do, and that.
var advised = []struct {
	last *regexp.Regexp
	say  string
}{
	{
		regexp.MustCompile(`No registered 'Hora\w+' OpKernel for XLA`),
		": XLA does not know hora's operations: leave jit_compile=True out, or set HORA_TF_XLA=1",
	},
	{
		regexp.MustCompile(`^RuntimeError: tf\.placeholder\(\) is not compatible with eager execution`),
		": call tf.compat.v1.disable_eager_execution() before the first operation is made",
	},
	{
		regexp.MustCompile(`^TypeError: .*unexpected keyword argument 'experimental_run_tf_function'`),
		": leave it out, which changes nothing: Keras 3 has it no more",
	},
}

// advice returns what a program should hear whose framework does not say it, ": …", or "" for another failure.
func (c *crew) advice(o *Outcome) string {
	for _, a := range advised {
		if a.last.MatchString(o.Last) {
			return a.say
		}
	}
	has := slices.ContainsFunc(c.spec.Env, func(e string) bool { return strings.HasPrefix(e, "HORA_LEGACY=tf1") })
	if old.MatchString(o.Last) && !has {
		return ": if the script was written for TensorFlow 1 or Keras 2, start it with --legacy tf1"
	}
	return ""
}
