package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// machineMemory is what this machine has, in bytes; 0 where nobody says.
func machineMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var kb int64
		if rest, ok := strings.CutPrefix(in.Text(), "MemTotal:"); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kb); err == nil {
				return kb << 10
			}
		}
	}
	return 0
}

// machineGPUs counts NVIDIA's devices.
func machineGPUs() int {
	all, _ := filepath.Glob("/proc/driver/nvidia/gpus/*")
	return len(all)
}
