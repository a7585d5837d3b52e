package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderGoesAlongWithoutWhatIsIgnored(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		".gitignore": "*.log\n!keep.log\n/top\nbuild/\n# a comment\nlogs/**/old\n", ".horaignore": "data/*.bin\n", "train.py": "x",
		".amlignore": "/notes/\n", "notes/a": "", "sub/notes/b": "",
		"a.log": "", "keep.log": "", "top": "", "sub/top": "", "build/x": "", "sub/build/y": "", "data/a.bin": "", "data/a.txt": "",
		"logs/a/b/old": "", "logs/new": "", "sub/.gitignore": "only.txt\n", "sub/only.txt": "", "only.txt": "", ".git/config": "", "__pycache__/a.pyc": "",
	} {
		write(t, dir, name, text)
	}
	if err := os.Symlink("train.py", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	m, err := Take(dir, Limit)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Path)
	}
	want := ".amlignore .gitignore .horaignore data/a.txt keep.log link logs/new only.txt sub/.gitignore sub/notes/b sub/top train.py"
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("%s\nwant %s", got, want)
	}
	content, hash, err := m.Encode()
	if err != nil || len(hash) != 64 {
		t.Fatal(hash, err)
	}
	if m, err = Decode(content); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	contents := map[string]string{}
	for _, text := range []string{"", "x", "*.log\n!keep.log\n/top\nbuild/\n# a comment\nlogs/**/old\n", "data/*.bin\n", "/notes/\n", "only.txt\n"} {
		sum := sha256.Sum256([]byte(text))
		contents[hex.EncodeToString(sum[:])] = text
	}
	open := func(hash string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(contents[hash])), nil }
	if err := m.Restore(to, open); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "link")); string(b) != "x" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	for hash, text := range contents { // one copy is damaged
		contents[hash] = text + " "
		if err := m.Restore(t.TempDir(), open); err == nil || !strings.Contains(err.Error(), "and not "+hash+": the copy that it came from is damaged") {
			t.Errorf("%q came back as another text: %v", text, err)
		}
		contents[hash] = text
	}
}

// TestALinkedFolderGoesAlong as the folder that the link leads to, whether it says so from the root or from beside it.
func TestALinkedFolderGoesAlong(t *testing.T) {
	real := filepath.Join(t.TempDir(), "real")
	write(t, real, "train.py", "x")
	write(t, real, "data/a.txt", "y")
	want, err := Take(real, Limit)
	if err != nil {
		t.Fatal(err)
	}
	_, wantHash, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range [][2]string{{"absolute", real}, {"relative", "real"}, {"twice", "relative"}} { // each from those before
		name, to := l[0], l[1]
		link := filepath.Join(filepath.Dir(real), name)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		m, err := Take(link, Limit)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, hash, err := m.Encode(); err != nil || hash != wantHash {
			t.Errorf("%s: %+v goes along, %v; want %+v", name, m.Files, err, want.Files)
		}
	}
}

func TestAFolderThatIsTooLargeNamesWhatIs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "weights/a", strings.Repeat("x", 3<<20))
	write(t, dir, "train.py", "x")
	if _, err := Take(dir, 1<<20); err == nil || !strings.Contains(err.Error(), "most of all weights (3 MB)") {
		t.Fatal(err)
	}
}

func TestAListThatLeadsOutIsRefused(t *testing.T) {
	hash := strings.Repeat("a", 64)
	for _, text := range []string{
		`{"files":[{"path":"../x","hash":"` + hash + `"}]}`, `{"files":[{"path":"/x","hash":"` + hash + `"}]}`,
		`{"files":[{"path":"x","link":"../../y"}]}`, `{"files":[{"path":"x","link":"/etc/passwd"}]}`, `{"files":[{"path":"x","hash":"../../etc"}]}`, `[]`, ``,
	} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"files":[{"path":"a/b","mode":420,"size":1,"hash":"` + strings.Repeat("0", 64) + `"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := Decode(content)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(file.Path) {
				t.Fatalf("%q leads out", file.Path)
			}
		}
	})
}

func TestAFolderThatStaysBehind(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"train.py": "", "own/token": "x", "own/.horaignore": "!token"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := StayBehind(own); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Take(dir, Limit)
	if err != nil || len(m.Files) != 1 || m.Files[0].Path != "train.py" {
		t.Errorf("%+v, %v", m, err)
	}
	if b, err := os.ReadFile(filepath.Join(own, ".horaignore")); err != nil || string(b) != "!token\n"+staysBehind {
		t.Errorf("its rules are %q, %v", b, err)
	}
}
