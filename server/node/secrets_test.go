package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestASecretThatBeginsAnother: the longer one is masked whole, wherever it stands.
func TestASecretThatBeginsAnother(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, secretsFolder)
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"A": "password", "B": "password-of-mine", "C": "my-password"} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := readMask(dir)
	for text, want := range map[string]string{
		"it is password-of-mine, or password": "it is " + masked + ", or " + masked,
		"my-password":                         masked,
		"nothing":                             "nothing",
	} {
		if got := m.line(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
	if got := string(m.event([]byte(`{"text":"password-of-mine"}`))); got != `{"text":"`+masked+`"}` {
		t.Errorf("an event becomes %s", got)
	}
}

// TestWhatIsQuotedIsMaskedWhereItStands: hora run quotes the last that a rank wrote. When the secrets go, so do they
// from its events and its report.
func TestWhatIsQuotedIsMaskedWhereItStands(t *testing.T) {
	dir := t.TempDir()
	const secret = `a "quoted" one`
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write(filepath.Join(secretsFolder, "A"), secret)
	events := write(eventsFile, `{"event":"exited","cause":"exit code 3: xa \"quoted\" oney"}`+"\n")
	report := write(reportFile, `{"ended": "rank 0: a \"quoted\" one"}`)
	for range 2 { // the second time there are no secrets any more
		dropSecrets(dir)
	}
	for name, want := range map[string]string{
		events: `{"event":"exited","cause":"exit code 3: x***y"}` + "\n", report: `{"ended": "rank 0: ***"}`,
	} {
		if b, err := os.ReadFile(name); err != nil || string(b) != want {
			t.Errorf("%s is %s (%v), not %s", name, b, err, want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("there are %v", left)
	}
}
