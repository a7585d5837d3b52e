package launch

import (
	"regexp"
	"strings"
)

// old is the last line of a Python program that asked TensorFlow or Keras for a name that it has not.
var old = regexp.MustCompile(`^(AttributeError: module '(tensorflow|keras)[\w.]*' has no attribute |` +
	`AttributeError: '\w+' object has no attribute '(lr|fit_generator|evaluate_generator|predict_generator)'|` +
	`ImportError: cannot import name '\w+' from '(tensorflow|keras)[\w.]*'|` +
	`ModuleNotFoundError: No module named '(tensorflow\.)?keras\.|` +
	`ValueError: Argument\(s\) not recognized: \{'(lr|decay)': )`)

// oldNames returns what a program should hear that was written for TensorFlow 1 or Keras 2, ": …", or "" for another
// failure.
func (c *crew) oldNames(o *Outcome) string {
	for _, e := range c.spec.Env {
		if strings.HasPrefix(e, "HORA_LEGACY=tf1") {
			return ""
		}
	}
	if !old.MatchString(o.Last) {
		return ""
	}
	return ": if the script was written for TensorFlow 1 or Keras 2, start it with --legacy tf1"
}
