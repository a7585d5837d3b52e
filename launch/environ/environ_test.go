package environ

import (
	"fmt"
	"testing"
)

func TestOtherHostsDoNotInheritOurDevices(t *testing.T) {
	env := []string{"A=1", "BASH_FUNC_x%%=() {}", "OLDPWD=/", "CUDA_VISIBLE_DEVICES=0", "HIP_CUDA_VISIBLE_DEVICES=1", "HORA_SECRET_FILE=/s"}
	if got := fmt.Sprint(Inherited(env, true)); got != "[A=1 CUDA_VISIBLE_DEVICES=0 HIP_CUDA_VISIBLE_DEVICES=1]" {
		t.Error(got)
	}
	if got := fmt.Sprint(Inherited(env, false)); got != "[A=1]" {
		t.Error(got)
	}
}
