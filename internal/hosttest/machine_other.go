//go:build !linux

package hosttest

import "strconv"

func spaces(pid int) []string { return []string{"-t", strconv.Itoa(pid)} }

func (h *Host) spaces() []string { return spaces(h.pid) }

func (n *Net) holdHost(bool) int { return n.hold() }

func (h *Host) emulate() { h.net.t.Skip("needs root: hosts are network namespaces of Linux") }
