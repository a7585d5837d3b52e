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
	"slices"
	"strings"
)

// peerSources are the programs that run the competitors' collectives.
//
//go:embed peers
var peerSources embed.FS

// peerPrograms says how each is built and which packages that takes, Debian's
// where nothing else is said.
var peerPrograms = map[string]struct {
	source   string
	compiler []string
	libs     []string
	starter  string // that its ranks are started with; "": none
	packages string
}{
	"impi":     {"openmpi.c", []string{"gcc", "-O3", "-march=native"}, []string{"-lmpi", "-lm"}, "", "impi-rt impi-devel (Python wheels: make peers)"},
	"openmpi":  {"openmpi.c", []string{"mpicc", "-O3", "-march=native"}, []string{"-lm"}, "mpirun", "openmpi-bin libopenmpi-dev"},
	"gloo":     {"gloo.cc", []string{"g++", "-O3", "-march=native", "-std=c++14"}, []string{"-lgloo", "-lpthread"}, "", "g++ libgloo-dev"},
	"roofline": {"roofline.c", []string{"gcc", "-O3", "-march=native", "-std=gnu11"}, []string{"-lpthread", "-lm"}, "", "gcc libc6-dev"},
}

// MissingPeer says that a peer cannot be measured here, and what would change that.
type MissingPeer struct {
	Peer, Packages string
	Cause          error
}

func (e *MissingPeer) Error() string {
	return fmt.Sprintf("build peer %s: %v; install the packages %s to have its column", e.Peer, e.Cause, e.Packages)
}

// buildPeer compiles a peer's program into cache, once per source and kind of processor,
// and returns its path.
func buildPeer(ctx context.Context, peer string, cfg Config) (string, error) {
	p, cache, environ := peerPrograms[peer], cfg.Cache, cfg.Environ
	compiler := slices.Clone(p.compiler)
	if peer == "impi" {
		if _, err := os.Stat(filepath.Join(cfg.Impi, "include", "mpi.h")); cfg.Impi == "" || err != nil {
			return "", &MissingPeer{peer, p.packages, fmt.Errorf("no include/mpi.h in its folder %q", cfg.Impi)}
		}
		lib := filepath.Join(cfg.Impi, "lib")
		compiler = append(compiler, "-I", filepath.Join(cfg.Impi, "include"), "-L", lib, "-Wl,-rpath,"+lib)
	}
	if p.starter != "" {
		if _, err := exec.LookPath(p.starter); err != nil {
			return "", &MissingPeer{peer, p.packages, err}
		}
	}
	source, err := peerSources.ReadFile("peers/" + p.source)
	if err != nil {
		return "", err
	}
	header, err := peerSources.ReadFile("peers/measure.h")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(bytes.Join([][]byte{source, header, []byte(strings.Join(compiler, " ")), processor()}, nil))
	program := filepath.Join(cache, peer+"-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", fmt.Errorf("keep peer %s: %w; set XDG_CACHE_HOME to a folder that you may write to", peer, err)
	}
	dir, err := os.MkdirTemp("", "hora-peer-")
	if err != nil {
		return "", fmt.Errorf("build peer %s: %w; free space there, or set TMPDIR", peer, err)
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string][]byte{p.source: source, "measure.h": header} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", fmt.Errorf("write the source of peer %s: %w; free space there, or set TMPDIR", peer, err)
		}
	}
	built := filepath.Join(dir, peer)
	args := append(append(slices.Clone(compiler[1:]), "-o", built, filepath.Join(dir, p.source)), p.libs...)
	cmd := withItsOwn(exec.CommandContext(ctx, compiler[0], args...))
	cmd.Env = append(slices.Clone(environ), "TMPDIR="+dir) // where an interrupted compiler leaves its files
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", notBuilt(ctx, peer, err, string(out))
	}
	text, err := os.ReadFile(built)
	if err != nil {
		return "", fmt.Errorf("build peer %s: %w", peer, err)
	}
	// Written beside and renamed when it is whole: two runs at once never see half a program.
	part := fmt.Sprintf("%s.%d", program, os.Getpid())
	if err = os.WriteFile(part, text, 0o700); err == nil {
		err = os.Rename(part, program)
	}
	if err != nil {
		os.Remove(part)
		return "", fmt.Errorf("keep peer %s: %w; free space there, or set XDG_CACHE_HOME to another folder", peer, err)
	}
	return program, nil
}

// processor is what -march=native goes by, so far as it is known: machines of several kinds
// may share the folder of peers.
func processor() []byte {
	var of []byte
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(text) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		switch string(bytes.TrimSpace(name)) {
		case "model name", "flags", "Features":
			of = append(of, line...)
		case "": // the next processor is like this one
			return of
		}
	}
	return of
}

// notBuilt says why a compiler that ended with err has built nothing: a package is missing
// where there is no compiler, header or library, and no package helps a full disk.
func notBuilt(ctx context.Context, peer string, err error, output string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("build peer %s: %w", peer, ctx.Err())
	}
	missing := errors.Is(err, exec.ErrNotFound)
	said := ""
	for line := range strings.Lines(output) {
		absent := strings.Contains(line, "cannot find -l") || strings.Contains(line, "unable to find the specified compiler") ||
			strings.Contains(line, "fatal error: ") && strings.Contains(line, "No such file")
		missing = missing || absent
		if line = strings.TrimSpace(line); absent || said == "" && strings.Contains(strings.ToLower(line), "error") {
			said = line
		}
		if absent {
			break
		}
	}
	if said != "" {
		err = errors.New(said)
	}
	if missing {
		return &MissingPeer{peer, peerPrograms[peer].packages, err}
	}
	return fmt.Errorf("build peer %s: %w; look at the compiler, and at the space where TMPDIR points", peer, err)
}
