package credentials

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func lookup(all map[string]string) func(string) string {
	return func(name string) string { return all[name] }
}

// TestFind: what opens storage goes along whole, and nothing of a provider's whose storage it does not open.
func TestFind(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "[default]\naws_access_key_id = a\naws_secret_access_key = b\n" +
		"[job]\naws_access_key_id = c\naws_secret_access_key = d\naws_session_token = e\n"
	if err := os.WriteFile(filepath.Join(home, ".aws", "credentials"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		environ map[string]string
		want    []string
		has     string
	}{
		{map[string]string{"HOME": home}, []string{awsFile}, "aws_access_key_id = a\n"},
		{
			map[string]string{"HOME": home, "AWS_PROFILE": "job", "AWS_REGION": "r"},
			[]string{"AWS_REGION", awsFile},
			"aws_session_token = e\n",
		},
		{map[string]string{"AWS_REGION": "r", "HORA_GCS_TOKEN": "t"}, []string{"HORA_GCS_TOKEN"}, ""},
		{
			map[string]string{
				"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "i",
				"AZURE_CLIENT_SECRET": "s",
				"HORA_GCS_ENDPOINT":   "http://x",
			},
			[]string{"AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"},
			"",
		},
	} {
		got, err := Find(lookup(c.environ))
		names := slices.Sorted(maps.Keys(got))
		if err != nil || !slices.Equal(names, c.want) || !strings.Contains(got[awsFile], c.has) {
			t.Errorf("%v: %v, %v", c.environ, got, err)
		}
	}
	for says, environ := range map[string]map[string]string{
		"there are no keys to storage here":    {"AZURE_TENANT_ID": "t", "AWS_REGION": "r"},
		`there are none for profile "other"`:   {"HOME": home, "AWS_PROFILE": "other"},
		"set AWS_SHARED_CREDENTIALS_FILE to":   {awsFile: filepath.Join(home, "none")},
		"it is no JSON: set GOOGLE_":           {googleFile: filepath.Join(home, ".aws", "credentials")},
		"have 70000 bytes, and may have 65536": {"HORA_ADLS_TOKEN": strings.Repeat("x", 70000)},
	} {
		if got, err := Find(lookup(environ)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", says, got, err)
		}
	}
}

// TestForeign: beside somebody's keys nothing may stay by which a library finds others first.
func TestForeign(t *testing.T) {
	got := Foreign([]string{awsFile})
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not in %v", name, got)
		}
	}
	azure := func(name string) bool { return strings.HasPrefix(name, "AZURE") }
	if slices.Contains(got, awsFile) || slices.ContainsFunc(got, azure) {
		t.Errorf("%v", got)
	}
}
