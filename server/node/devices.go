package node

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"hora/launch/environ"
)

// A node's devices are dealt to the ranks of all its jobs by the agents that start them: each locks the files of those
// that it takes, in a folder of the node that says which there are. So a device is one rank's, also where the server,
// the node or a keeper was killed meanwhile, and is free as soon as that rank has ended: of a job that has ended, has
// shrunk, or was drained.

const devicesName = "devices" // beside the attempts

// Devices are those that this machine's jobs may have: of those that its own environment names, else counted from 0.
func (l *Local) Devices() []string {
	all := environ.Devices(l.Environ)
	if len(all) == 0 {
		for i := range l.GPUs {
			all = append(all, strconv.Itoa(i))
		}
	}
	return all[:min(len(all), l.GPUs)]
}

// bank says in the folder of the devices which there are. A file stays, and stays the same one: somebody may have
// locked it.
func (l *Local) bank() (dir string, err error) {
	if l.GPUs == 0 {
		return "", nil
	}
	dir = filepath.Join(l.Dir, devicesName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	places := map[string]string{}
	for i, id := range l.Devices() {
		places[url.PathEscape(id)] = strconv.Itoa(i)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if _, there := places[e.Name()]; !there {
			places[e.Name()] = "" // dealt no more
		}
	}
	for name, place := range places {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && string(b) == place {
			continue
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(place), 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// takeDevices has the ranks of a job see the devices that they are dealt; those of one that asks for none see none.
func (k *keeper) takeDevices() error {
	switch dir := k.task.Devices; {
	case dir == "":
		return nil
	case k.task.Document.Spec.GPUsPerRank == 0:
		return k.own.Setenv(environ.VisibleDevices, "")
	default: // hora counts them, and its agents take those that are free
		return errors.Join(k.own.Unsetenv(environ.VisibleDevices), k.own.Setenv(environ.SharedDevices, dir))
	}
}
