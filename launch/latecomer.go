package launch

// latecomer says whether the present process of a rank was started for work that is done by now: it was never a member
// of an epoch, and no epoch follows. However it ends, the job is none the worse.
func (j *job) latecomer(rank int) bool {
	_, took := j.took.Load(rank)
	return !took && j.complete.Load()
}

// endLatecomers ends what the job would wait for in vain when all who worked have ended.
func (j *job) endLatecomers() {
	if j.stopped || !j.complete.Load() {
		return
	}
	for rank, alive := range j.alive {
		if alive && !j.latecomer(rank) {
			return
		}
	}
	j.stop(j.spec.Grace)
}
