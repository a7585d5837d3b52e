package launch

import (
	"context"
	"os"
)

func (j *job) startRemote(l *link, in, out *os.File) error {
	return fault(ExitHost, "reach host %s", l.name)
}

func (j *job) askRoutes(ctx context.Context) ([]route, error) { return nil, nil }
