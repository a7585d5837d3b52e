package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SecretsVariable names the folder in which a job finds its secrets, a file each, of its user alone. They are nowhere
// else: not in what is kept of the job, in no variable and on no command line; they go with the job's end.
const SecretsVariable = "HORA_SECRETS"

const secretsFolder = "secrets"

func putSecrets(dir string, all map[string][]byte) error {
	if len(all) == 0 {
		return nil
	}
	at := filepath.Join(dir, secretsFolder)
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return err
	}
	defer root.Close()
	for name, value := range all {
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(value)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// tokenFile has the token with which the job may ask the server about itself; TokenVariable names it to the job.
const (
	tokenFile     = "token"
	TokenVariable = "HORA_TOKEN_FILE"
)

func putToken(dir, token string) error {
	if token == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, tokenFile), []byte(token+"\n"), 0o600)
}

// dropSecrets takes them away, the keys to storage, and the token. Where hora run has quoted the last that a rank wrote
// there may be one of them: from now on it is masked there too.
func dropSecrets(dir string) {
	readMask(dir).clean(filepath.Join(dir, eventsFile), filepath.Join(dir, reportFile))
	_ = os.RemoveAll(filepath.Join(dir, lentFolder))
	_ = os.RemoveAll(filepath.Join(dir, secretsFolder))
	_ = os.Remove(filepath.Join(dir, tokenFile))
}

// masked stands for a secret in what a job writes.
const masked = "***"

// shortest is the length from which on a secret, or a line of one, is masked: what is shorter stands in too many lines.
const shortest = 4

// mask replaces secrets in text: whole ones, and each line of those that have several. nil masks nothing.
type mask struct {
	text *strings.Replacer
	json *strings.Replacer
}

// readMask makes one of the secrets and the token of an attempt's folder.
func readMask(dir string) *mask {
	var values []string
	add := func(value string) {
		if value = strings.Trim(value, "\r\n"); len(value) >= shortest {
			values = append(values, value)
		}
	}
	files := []string{filepath.Join(dir, tokenFile)}
	entries, _ := os.ReadDir(filepath.Join(dir, secretsFolder)) // none where there is no secret
	for _, e := range entries {
		files = append(files, filepath.Join(dir, secretsFolder, e.Name()))
	}
	whole := func(text string) {
		add(text)
		if lines := strings.Split(text, "\n"); len(lines) > 1 {
			for _, line := range lines {
				add(line)
			}
		}
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil {
			whole(string(b))
		}
	}
	for _, text := range lentSecrets(dir) {
		whole(text)
	}
	if values == nil {
		return nil
	}
	// Of one that is the beginning of another the longer is masked, whole.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	var plain, quoted []string
	for _, value := range values {
		plain = append(plain, value, masked)
		b, _ := json.Marshal(value)
		quoted = append(quoted, string(b[1:len(b)-1]), masked)
	}
	return &mask{strings.NewReplacer(plain...), strings.NewReplacer(quoted...)}
}

func (m *mask) line(text string) string {
	if m == nil {
		return text
	}
	return m.text.Replace(text)
}

// event masks one that is written as JSON.
func (m *mask) event(b []byte) []byte {
	if m == nil {
		return b
	}
	return []byte(m.json.Replace(string(b)))
}

// clean masks files of JSON. One that cannot be written anew is removed: the server has what it says.
func (m *mask) clean(names ...string) {
	if m == nil {
		return
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // there is none
		}
		masked := m.event(b)
		if bytes.Equal(masked, b) {
			continue
		}
		part := name + ".new"
		if errors.Join(os.WriteFile(part, masked, 0o600), os.Rename(part, name)) != nil {
			_ = os.Remove(part)
			_ = os.Remove(name)
		}
	}
}
