package launch

// latecomer says whether the present process of a rank was started for work that is done by now: it was never a member
// of an epoch, and no epoch follows. However it ends, the job is none the worse.
func (m *meeting) latecomer(rank int) bool {
	_, took := m.took.Load(rank)
	return !took && m.complete.Load()
}

// onlyLatecomers says whether nobody else is left.
func (m *meeting) onlyLatecomers(alive []bool) bool {
	for rank, is := range alive {
		if is && !m.latecomer(rank) {
			return false
		}
	}
	return true
}
