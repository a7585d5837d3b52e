//go:build !linux

package hosttest

// Switch needs Linux; Up has skipped the test before.
type Switch struct{}

func (n *Net) Switch(uint64) *Switch              { panic("hosttest: needs Linux") }
func (s *Switch) Set(_, _ *Host, _ Way)           {}
func (s *Switch) SetAll(Way)                      {}
func (s *Switch) Count(_, _ *Host) (int64, int64) { return 0, 0 }
func (h *Host) Do(func() error)                   { panic("hosttest: needs Linux") }
