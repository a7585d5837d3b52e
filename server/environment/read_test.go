package environment

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"hora/server/client"
)

func TestRead(t *testing.T) {
	files := map[string]string{
		"requirements.txt":    "# comment\n\nnumpy ==2.1  # why\n-r more/other.txt\n--index-url https://x/simple#a\nlong\\\n  >=1\n  -c bounds.txt\npkg @ https://x/y.whl#sha256=ab\n",
		"more/other.txt":      "-r third.txt\nscipy; python_version > '3'\n",
		"more/third.txt":      "third[extra]>=1\r\n",
		"bounds.txt":          "numpy<3\n",
		"environment.yml":     "name: x\nchannels: [conda-forge, defaults]\ndependencies:\n  - python=3.6.2\n  - pip=20\n  - numpy=1.18\n  - conda-forge::scipy>=1\n  - pip:\n    - azureml-defaults\n    - -r more/third.txt\n",
		"only.yaml":           "dependencies: [python>=3.8, {pip: [a==1]}]\n",
		"circle.txt":          "-r circle.txt\n",
		"editable.txt":        "a\n-e .\n",
		"path.txt":            "./wheel.whl\n",
		"option.txt":          "--target /etc\n",
		"none.txt":            "# nothing\n",
		"include.txt":         "-r none-there.txt\n",
		"odd.yml":             "dependencies:\n- {pip: x}\n",
		"list.yml":            "dependencies: numpy\n",
		"variables.yml":       "dependencies: [a]\nvariables: {A: 1}\n",
		"broken.yml":          "dependencies: [a\n",
		"without-a-value.txt": "--find-links\n",
	}
	open := func(name string) (string, error) {
		if text, ok := files[name]; ok {
			return text, nil
		}
		return "", fmt.Errorf("open %s: no such file", name)
	}
	for name, want := range map[string]client.Environment{
		"requirements.txt": {
			Pip:         []string{"numpy ==2.1", "third[extra]>=1", "scipy; python_version > '3'", "--index-url https://x/simple#a", "long  >=1", "pkg @ https://x/y.whl#sha256=ab"},
			Constraints: []string{"numpy<3"},
		},
		"environment.yml": {Pip: []string{"azureml-defaults", "third[extra]>=1"}, Conda: []string{"numpy=1.18", "conda-forge::scipy>=1"}, Channels: []string{"conda-forge", "defaults"}, Python: "3.6.2"},
		"only.yaml":       {Pip: []string{"a==1"}, Python: "3.8"},
	} {
		got, err := Read(name, files[name], open)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"circle.txt":          "name each other in a circle",
		"editable.txt":        "editable.txt:2: -e .: an environment is shared",
		"path.txt":            "path.txt:1: ./wheel.whl: an environment is shared",
		"option.txt":          "option.txt:1: --target /etc: --target is not taken",
		"none.txt":            "none.txt names no package",
		"include.txt":         "include.txt:1: open none-there.txt: no such file",
		"odd.yml":             "odd.yml:2: beside packages a list named pip",
		"list.yml":            "list.yml:1: dependencies are a list",
		"variables.yml":       "give them with --env NAME=VALUE",
		"broken.yml":          "broken.yml: ",
		"without-a-value.txt": "--find-links needs a value",
	} {
		if got, err := Read(name, files[name], open); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestCheck(t *testing.T) {
	good := &client.Environment{
		File: &client.EnvironmentFile{Name: "e.yml", Text: "dependencies: [numpy, {pip: [a]}]"},
		Pip:  []string{"b"}, Nearest: []string{"torch==1.13", "tensorflow"},
	}
	want := client.Environment{Pip: []string{"b", "a"}, Conda: []string{"numpy"}, Nearest: good.Nearest}
	if err := Check(good); err != nil || !reflect.DeepEqual(*good, want) {
		t.Errorf("%+v, %v", good, err)
	}
	for want, e := range map[string]client.Environment{
		"which did not come along": {File: &client.EnvironmentFile{Name: "r.txt", Text: "-r other.txt"}},
		"more than one line":       {Pip: []string{"a\n--target=/"}},
		"empty requirement":        {Pip: []string{""}},
		"is not taken":             {Lock: []string{"--root=/"}},
		"no package with":          {Nearest: []string{"torch>=1"}},
		"of conda":                 {Conda: []string{"--prefix"}},
	} {
		if err := Check(&e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for text, want := range map[string]bool{"A=b": false, "PATH": false, "r.txt": true, "./r": true, "a/b": true, "A=./x": false} {
		if IsFile(text) != want {
			t.Errorf("IsFile(%q) is %v", text, !want)
		}
	}
}
