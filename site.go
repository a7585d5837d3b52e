package hora

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// site returns where the program calls this package, as the name of a call that has none: file and
// line without the folder, which may be another one on each host. It is empty where nobody asked
// for that, and in a group of names.
func (g *Group) site() string {
	if !g.world.cfg.CheckCalls || g.named {
		return ""
	}
	var at [16]uintptr
	frames := runtime.CallersFrames(at[:runtime.Callers(2, at[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "hora.") {
			if f.File == "" {
				return ""
			}
			return fmt.Sprintf("at %s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// placed gives those of rs that have no name, messages apart, their place in the program.
func (g *Group) placed(rs []Request) []Request {
	at := g.site()
	for i := range rs {
		if k := rs[i].Kind; rs[i].Name == "" && k != KindSend && k != KindRecv {
			rs[i].Name = at
		}
	}
	return rs
}
