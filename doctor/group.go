package doctor

import (
	"path/filepath"
	"strconv"
	"strings"

	"hora/launch/machine"
)

// least is the tightest limit of this process's control group and those above it, and whose it is; 0 where there is
// none.
func (m *Machine) least(controller string, limit func(read func(name string) string) float64) (float64, string) {
	least, whose := 0.0, ""
	for _, dir := range machine.Cgroup(m.Root, controller) {
		dir = strings.TrimPrefix(dir, filepath.Clean(m.Root))
		if n := limit(func(name string) string { return m.read(filepath.Join(dir, name)) }); n > 0 &&
			(least == 0 || n < least) {
			least, whose = n, dir
		}
	}
	return least, whose
}

// groupCores is how many cores' worth of time this process may use.
func (m *Machine) groupCores() (float64, string) {
	return m.least("cpu", func(read func(string) string) float64 {
		quota, period, _ := strings.Cut(read("cpu.max"), " ")
		if quota == "" {
			quota, period = read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")
		}
		per := number(period)
		if per == 0 {
			return 0
		}
		return number(quota) / per
	})
}

// groupMemory is how many bytes it may use.
func (m *Machine) groupMemory() (float64, string) {
	return m.least("memory", func(read func(string) string) float64 {
		if v := read("memory.max"); v != "" {
			return number(v)
		}
		return number(read("memory.limit_in_bytes"))
	})
}

// number reads a limit; what is no number, such as "max", or below 0 is none: 0.
func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
