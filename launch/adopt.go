package launch

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"hora/internal/secret"
	jobs "hora/job"
)

// Adoption is a job whose launcher is gone while its agents wait for another.
type Adoption struct {
	Spec   jobs.Spec // what it was started with
	Hosts  []Host
	dir    string
	head   *head
	ledger *ledger
}

// Find looks for such a job by the folder of its state. Until Run returns nobody else can adopt it.
func Find(dir string) (*Adoption, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault(ExitSystem, "--adopt %s: %v", dir, err)
	}
	l, err := openPast(path)
	if err != nil {
		return nil, err
	}
	h, err := l.read(path)
	if err != nil {
		l.file.Close()
		return nil, err
	}
	l.dir = path
	return &Adoption{Spec: h.Spec, Hosts: h.Hosts, dir: path, head: h, ledger: l}, nil
}

// Keep returns what the program that started the job has kept for this one; nil where that was nothing.
func (a *Adoption) Keep() []byte { return a.head.Keep }

// Secret returns the job's.
func (a *Adoption) Secret() (secret.Secret, error) {
	s, err := secret.Parse([]byte(a.head.Secret))
	if err != nil {
		return s, fault(ExitUsage, "--adopt %s: its file launcher is damaged: %v: start the job again", a.dir, err)
	}
	return s, nil
}

// Name returns the job's.
func (a *Adoption) Name() string { return a.head.Name }

// Run takes the job over and returns when nothing of it is left, as the function Run does. What only the first launcher
// had, the environment and the secret among it, comes from the job's state.
func (a *Adoption) Run(ctx context.Context, place Place) (Outcome, error) {
	defer a.ledger.file.Close()
	h := a.head
	spec := h.Spec
	spec.Name, spec.Dir, spec.CoordinatorState = h.Name, h.Dir, a.dir
	for _, path := range []*string{&spec.Report, &spec.LogDir} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(h.Folder, *path)
		}
	}
	known, err := a.Secret()
	if err != nil {
		return Outcome{}, err
	}
	place.Secret, place.Environ = known, keyed(h.Environ, place.Environ)
	place.LocalName, place.Hosts = h.LocalName, h.Hosts
	place.Keep = h.Keep
	place.Grace, place.Notice = h.Grace, h.Notice
	place.Join, place.JoinWord, place.Stdin = h.Join, h.JoinWord, nil
	if place.Results != "" && !h.Results {
		return Outcome{}, fault(ExitUsage, "--adopt %s: its workers leave no results, which --results %s is for: leave the flag away", a.dir, place.Results)
	}
	s, err := resolve(&spec, &place)
	if err != nil {
		return Outcome{}, err
	}
	s.NP, s.Port = h.NP, h.Port
	if d := s.Discovery; d != nil {
		if s.NP, s.MinNP = h.Wanted, h.Min; d.Script != nil {
			d.Script.Dir = h.Folder
		}
	}
	s.defaults()
	s.takeCall(h, a.dir)
	j := newJob(s)
	if j.admission.callSize, err = s.weighCall(); err != nil {
		return Outcome{}, err
	}
	j.record.began, j.record.story.began, j.record.ledger = h.Began, h.Began, a.ledger
	return (&heir{job: j, head: h, dir: a.dir}).run(ctx)
}

// keyed returns a job's environment with the heir's agent of ssh keys: the first launcher's may have ended with it.
func keyed(environ, own []string) []string {
	keys := func(v string) bool { return strings.HasPrefix(v, "SSH_AUTH_SOCK=") }
	if i := slices.IndexFunc(own, keys); i >= 0 {
		return append(slices.DeleteFunc(slices.Clone(environ), keys), own[i])
	}
	return environ
}

// kept returns a route as the ledger keeps it.
func (r *route) kept() *headRoute { return &headRoute{r.addr, r.master, r.masterPort, r.listen, r.dug} }

func (r *headRoute) route() route {
	return route{addr: r.Addr, master: r.Master, masterPort: r.Port, listen: r.Listen, dug: r.Dug}
}

// errUnopened is why a job is not adopted for which a host's agent could not even be begun.
var errUnopened = errors.New("a host's agent could not be started")

// alone writes down that the job has come to what another launcher could not take over.
func (l *ledger) alone(why error) { l.write(&entry{Kind: entryAlone, Text: why.Error()}) }
