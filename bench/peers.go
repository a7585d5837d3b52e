package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// peerSources are the programs that run the competitors' collectives.
//
//go:embed peers
var peerSources embed.FS

// peerPrograms says how each is built and which Debian packages that takes.
var peerPrograms = map[string]struct {
	source   string
	compiler []string
	libs     []string
	packages string
}{
	"openmpi":  {"openmpi.c", []string{"mpicc", "-O3", "-march=native"}, []string{"-lm"}, "openmpi-bin libopenmpi-dev"},
	"gloo":     {"gloo.cc", []string{"g++", "-O3", "-march=native", "-std=c++14"}, []string{"-lgloo", "-lpthread"}, "g++ libgloo-dev"},
	"roofline": {"roofline.c", []string{"gcc", "-O3", "-march=native", "-std=gnu11"}, []string{"-lpthread", "-lm"}, "gcc libc6-dev"},
}

// MissingPeer says that a peer cannot be measured here, and what would change that.
type MissingPeer struct {
	Peer, Packages string
	Cause          error
}

func (e *MissingPeer) Error() string {
	return fmt.Sprintf("build peer %s: %v; install the packages %s to have its column", e.Peer, e.Cause, e.Packages)
}

// buildPeer compiles a peer's program into cache, once per source, and returns its path.
func buildPeer(ctx context.Context, peer, cache string) (string, error) {
	p := peerPrograms[peer]
	source, err := peerSources.ReadFile("peers/" + p.source)
	if err != nil {
		return "", err
	}
	header, err := peerSources.ReadFile("peers/measure.h")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(bytes.Join([][]byte{source, header, []byte(strings.Join(p.compiler, " "))}, nil))
	program := filepath.Join(cache, peer+"-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	dir, err := os.MkdirTemp("", "hora-peer-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, p.source)
	err = errors.Join(os.WriteFile(path, source, 0o600), os.WriteFile(filepath.Join(dir, "measure.h"), header, 0o600))
	if err != nil {
		return "", fmt.Errorf("write the source of peer %s: %w; free space there, or set TMPDIR", peer, err)
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", fmt.Errorf("keep peer %s: %w; set XDG_CACHE_HOME to a folder that you may write to", peer, err)
	}
	built := filepath.Join(dir, peer)
	args := append(append(append([]string{}, p.compiler[1:]...), "-o", built, path), p.libs...)
	cmd := exec.CommandContext(ctx, p.compiler[0], args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &MissingPeer{peer, p.packages, firstError(err, out)}
	}
	text, err := os.ReadFile(built)
	if err != nil {
		return "", err
	}
	// Written beside and renamed: two runs at once never see half a program.
	part := fmt.Sprintf("%s.%d", program, os.Getpid())
	if err := errors.Join(os.WriteFile(part, text, 0o700), os.Rename(part, program)); err != nil {
		return "", fmt.Errorf("keep peer %s: %w", peer, err)
	}
	return program, nil
}

func firstError(err error, output []byte) error {
	for _, line := range strings.Split(string(output), "\n") {
		if strings.Contains(line, "error") || strings.Contains(line, "cannot find") {
			return errors.New(strings.TrimSpace(line))
		}
	}
	return err
}
