package main

import (
	"fmt"
	"strconv"

	"hora/observe"
)

// paceText is collectives and bytes per second and rank, and the rank that the others wait for.
func paceText(p observe.Pace) string {
	text := fmt.Sprintf(", %s collectives/s, %sB/s", counted(p.Operations), scaled(p.Bytes))
	if p.Slowest < 0 {
		return text
	}
	text += fmt.Sprintf(", slowest: rank %d", p.Slowest)
	if p.Host != "" {
		text += " on " + p.Host
	}
	return text + fmt.Sprintf(" (others wait %.0f %%)", 100*p.Waits)
}

// counted writes a number as people count.
func counted(v float64) string {
	if v < 99.95 {
		return fmt.Sprintf("%.1f", v)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// scaled writes a number in three digits and a prefix.
func scaled(v float64) string {
	for _, unit := range []string{"", "k", "M", "G"} {
		if v < 999.5 {
			if v < 99.95 {
				return fmt.Sprintf("%.1f %s", v, unit)
			}
			return fmt.Sprintf("%.0f %s", v, unit)
		}
		v /= 1000
	}
	return fmt.Sprintf("%.1f T", v)
}
