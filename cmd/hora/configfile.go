package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const configFlag = "config-file"

// sections maps a key of horovodrun's configuration file to a flag; a leading "!" turns its sense around.
var sections = map[string]map[string]string{
	"params": {
		"fusion-threshold-mb": "fusion-threshold-mb", "cycle-time-ms": "cycle-time-ms", "cache-capacity": "cache-capacity",
		"hierarchical-allreduce": "hierarchical-allreduce", "hierarchical-allgather": "hierarchical-allgather", "torus-allreduce": "torus-allreduce",
	},
	"autotune": {
		"enabled": "autotune", "log-file": "autotune-log-file", "warmup-samples": "autotune-warmup-samples",
		"steps-per-sample": "autotune-steps-per-sample", "bayes-opt-max-samples": "autotune-bayes-opt-max-samples",
		"gaussian-process-noise": "autotune-gaussian-process-noise",
	},
	"timeline": {"filename": "timeline-filename", "mark-cycles": "timeline-mark-cycles"},
	"stall-check": {
		"enabled": "!no-stall-check", "warning-time-seconds": "stall-check-warning-time-seconds",
		"shutdown-time-seconds": "stall-check-shutdown-time-seconds",
	},
	"library-options": {
		"mpi-threads-disable": "mpi-threads-disable", "num-nccl-streams": "num-nccl-streams", "thread-affinity": "thread-affinity",
		"gloo-timeout-seconds": "gloo-timeout-seconds", "mpi-args": "mpi-args", "tcp": "tcp", "binding-args": "binding-args",
	},
	"logging": {"level": "log-level", "with-timestamp": "!log-without-timestamp", "without-timestamp": "log-without-timestamp"},
}

// readConfig applies a YAML file as if its flags stood on the command line in its place.
func (o *options) readConfig(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return fmt.Errorf("read --%s %q: %w: name a YAML file with lines such as \"verbose: true\"", configFlag, path, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return yamlFault(path, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	err = o.configMap(path, "", doc.Content[0])
	o.tags = nil // what follows on the command line contradicts nothing here: it wins
	return err
}

var yamlWords = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// yamlFault is the reader's complaint about a file that is no YAML, as "file:line: why".
func yamlFault(path string, err error) error {
	text := err.Error()
	if m := yamlWords.FindStringSubmatch(text); m != nil {
		text = strings.TrimPrefix(text, m[0])
		if m[1] != "" {
			path += ":" + m[1]
		}
	}
	return fmt.Errorf("%s: it is no YAML (%s): write lines such as \"verbose: true\"", path, text)
}

func (o *options) configMap(path, section string, node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: expected \"name: value\" lines", path, node.Line)
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := strings.ReplaceAll(key.Value, "_", "-")
		if section == "" && value.Kind == yaml.MappingNode {
			if _, ok := sections[name]; !ok {
				return fmt.Errorf("%s:%d: there is no section %q", path, key.Line, key.Value)
			}
			if err := o.configMap(path, name, value); err != nil {
				return err
			}
			continue
		}
		flag := name
		if section != "" {
			flag = sections[section][name]
		} else if name == "controller" && value.Kind == yaml.ScalarNode {
			flag = value.Value
			value = &yaml.Node{Kind: yaml.ScalarNode, Value: "true", Line: value.Line}
		}
		if err := o.configValue(flag, value); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", path, key.Line, key.Value, err)
		}
	}
	return nil
}

func (o *options) configValue(flag string, value *yaml.Node) error {
	turned := strings.HasPrefix(flag, "!")
	row := findFlag(o.table, "--"+strings.TrimPrefix(flag, "!"))
	if flag == "" || row == nil {
		return fmt.Errorf("there is no such setting")
	}
	texts := []string{value.Value}
	if value.Kind == yaml.SequenceNode {
		texts = texts[:0]
		for _, n := range value.Content {
			texts = append(texts, n.Value)
		}
		if row.values() > 1 {
			texts = []string{strings.Join(texts, " ")}
		}
	}
	for _, text := range texts {
		if value.Tag == "!!null" {
			continue
		}
		if row.values() == 0 {
			b, err := strconv.ParseBool(strings.ToLower(text))
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", text)
			}
			text = strconv.FormatBool(b != turned)
		}
		if err := (flagValue{row, o}).Set(text); err != nil {
			return err
		}
	}
	return nil
}
