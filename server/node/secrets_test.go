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
