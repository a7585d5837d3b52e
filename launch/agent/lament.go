package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"hora/launch/logs"
)

// lament leaves a word about why the workers of this host are ended, where nobody is left to be told: in the job's log
// directory, or on standard error.
func (a *agent) lament(why string) {
	if a.orphaned || a.ending.stopping || a.live == 0 || a.plan == nil {
		return
	}
	its := "its worker here is"
	if a.live != 1 {
		its = fmt.Sprintf("its %d workers here are", a.live)
	}
	text := fmt.Sprintf("%s hora: job %s on %s: %s: %s ended\n", time.Now().Format(time.DateTime), a.plan.Job, a.plan.Host, why, its)
	if a.plan.LogDir != "" && logs.Folder(a.plan.LogDir) == nil {
		f, err := logs.Open(filepath.Join(a.plan.LogDir, "hora."+a.plan.Host), os.O_APPEND|os.O_WRONLY)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err == nil {
			return
		}
	}
	_, _ = os.Stderr.WriteString(text) // there is nobody else to tell
}
