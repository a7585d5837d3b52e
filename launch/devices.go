package launch

import (
	"strconv"
	"strings"
)

// devices returns the n that the rank of a number on its machine gets: of the visible ones, else counted from 0.
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
