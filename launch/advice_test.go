package launch

import (
	"strings"
	"testing"
)

// TestAdviceForFrameworks: what a framework says of its own, and what to do.
func TestAdviceForFrameworks(t *testing.T) {
	for last, want := range map[string]string{
		"tensorflow.python.framework.errors_impl.InvalidArgumentError: Detected unsupported operations when trying to compile graph f on XLA_CPU_JIT: HoraEach (No registered 'HoraEach' OpKernel for XLA_CPU_JIT devices)": "HORA_TF_XLA=1",
		"RuntimeError: tf.placeholder() is not compatible with eager execution.":                         "disable_eager_execution",
		"TypeError: Trainer.compile() got an unexpected keyword argument 'experimental_run_tf_function'": "leave it out",
		"AttributeError: module 'tensorflow' has no attribute 'ConfigProto'":                             "--legacy tf1",
		"AttributeError: 'Adam' object has no attribute 'lr'":                                            "--legacy tf1",
		"AttributeError: 'Adam' object has no attribute 'rate'":                                          "",
		"ValueError: no": "",
	} {
		c := &crew{spec: &settings{}}
		got := c.advice(&Outcome{Last: last})
		if !strings.Contains(got, want) || (want == "") != (got == "") || got != "" && !strings.HasPrefix(got, ": ") {
			t.Errorf("%s: %q, want %q", last, got, want)
		}
		c.spec.Env = []string{"HORA_LEGACY=tf1"}
		if got := c.advice(&Outcome{Last: last}); want == "--legacy tf1" && got != "" {
			t.Errorf("%s: %q, with the names there", last, got)
		}
	}
}
