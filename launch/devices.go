package launch

import (
	"strconv"
	"strings"
)

const visibleDevices = "CUDA_VISIBLE_DEVICES"

// visible are the devices that the launcher itself may use, as a scheduler has allotted them; nil where nobody says.
func visible(environ []string) []string {
	var ids []string
	for id := range strings.SplitSeq(lookup(environ, visibleDevices), ",") {
		if id = strings.TrimSpace(id); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// devices are the n that the rank of a number on its machine gets: of the visible ones, else counted from 0.
func devices(visible []string, local, n int) string {
	if visible != nil {
		from := min(local*n, len(visible)) // in a job that grows there may be none left
		return strings.Join(visible[from:min(from+n, len(visible))], ",")
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(local*n + i)
	}
	return strings.Join(ids, ",")
}

// enoughDevices refuses ranks on this machine for which there are fewer devices than each is to get. What other hosts
// have, only they know.
func (j *job) enoughDevices() error {
	ids := visible(j.spec.Environ)
	if j.spec.GPUs == 0 || ids == nil {
		return nil
	}
	ranks := 0
	var names []string // that stand for this machine
	for _, s := range j.seats {
		name := j.hosts[s.Host].Name
		if s.LocalRank == 0 && j.isLocal(name) {
			ranks += s.LocalSize
			names = append(names, name)
		}
	}
	if ranks*j.spec.GPUs > len(ids) {
		return fault(ExitUsage, "--gpus-per-rank %d: %d ranks on %s need %d devices, and %s=%s names %d: start fewer ranks, or give each fewer",
			j.spec.GPUs, ranks, strings.Join(names, " and "), ranks*j.spec.GPUs, visibleDevices, strings.Join(ids, ","), len(ids))
	}
	return nil
}
