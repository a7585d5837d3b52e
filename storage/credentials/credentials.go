// Package credentials knows with what storage opens: the variables and files of Amazon's, Google's and Azure's.
// It finds somebody's, so that they can go along with a job to another machine. It asks no server, and keeps nothing.
package credentials

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Set is what goes along, by the names of variables: what they hold, or what the file holds that they name.
type Set map[string]string

// Most is how many bytes a set may have.
const Most = 64 << 10

const (
	awsFile    = "AWS_SHARED_CREDENTIALS_FILE"
	googleFile = "GOOGLE_APPLICATION_CREDENTIALS"
)

// kind is one provider's storage.
type kind struct {
	name    string
	secret  []string // variables that hold a secret
	plain   []string // variables that say where, and as whom
	file    string   // the variable that names a file
	foreign []string // further ones by which its libraries find others' keys
}

var kinds = []kind{
	{
		name: "Amazon's", file: awsFile,
		plain: []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HORA_S3_ENDPOINT"},
		foreign: []string{
			"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ROLE_ARN",
			"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		},
	},
	{
		name: "Google's", file: googleFile, secret: []string{"HORA_GCS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"},
		plain: []string{"GOOGLE_CLOUD_PROJECT", "HORA_GCS_ENDPOINT", "STORAGE_EMULATOR_HOST"},
	},
	{
		name: "Azure's", secret: []string{"HORA_ADLS_TOKEN", "AZURE_CLIENT_SECRET"},
		plain:   []string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_AUTHORITY_HOST", "HORA_ADLS_ENDPOINT"},
		foreign: []string{"AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_USERNAME", "AZURE_PASSWORD"},
	},
}

// carries returns the variables of a kind that can go along.
func (k *kind) carries() []string {
	all := slices.Concat(k.secret, k.plain)
	if k.file != "" {
		all = append(all, k.file)
	}
	return all
}

// Names returns what a Set may hold.
func Names() (all []string) {
	for i := range kinds {
		all = append(all, kinds[i].carries()...)
	}
	slices.Sort(all)
	return all
}

// Find returns what this environment opens storage with. Of a provider whose storage it has no key to, nothing goes
// along: not its region either.
func Find(lookup func(string) string) (Set, error) {
	all := Set{}
	aws, err := FindAWS(lookup)
	if err != nil {
		return nil, err
	}
	if aws.ID != "" {
		all[awsFile] = aws.file()
	}
	if name := lookup(googleFile); name != "" {
		text, err := os.ReadFile(name)
		if err == nil && !json.Valid(text) {
			err = errors.New("it is no JSON")
		}
		if err != nil {
			return nil, fmt.Errorf("read the key of Google's storage from %s: %w: set %s to the file that is meant", name, err, googleFile)
		}
		all[googleFile] = string(text)
	}
	for i := range kinds {
		k := &kinds[i]
		for _, name := range k.secret {
			if v := lookup(name); v != "" {
				all[name] = v
			}
		}
		if !slices.ContainsFunc(k.carries(), func(name string) bool { return all[name] != "" }) {
			continue
		}
		for _, name := range k.plain {
			if v := lookup(name); v != "" {
				all[name] = v
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there are no keys to storage here: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), " +
			"GOOGLE_APPLICATION_CREDENTIALS, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET")
	}
	return all, all.Check()
}

// Check says what cannot go along.
func (s Set) Check() error {
	names, size := Names(), 0
	for name, value := range s {
		size += len(value)
		switch {
		case !slices.Contains(names, name):
			return fmt.Errorf("%s is no variable of a storage's: %s are", name, strings.Join(names, ", "))
		case value == "" || strings.ContainsRune(value, 0):
			return fmt.Errorf("%s is empty, or no text: leave it out", name)
		}
	}
	if size > Most {
		return fmt.Errorf("the keys to storage have %d bytes, and may have %d: leave those out that the job does not need", size, Most)
	}
	return nil
}

// IsFile reports whether a variable names a file.
func IsFile(name string) bool { return name == awsFile || name == googleFile }

// Foreign returns the variables that must not be there beside some names, or another's keys would be taken for them.
func Foreign(names []string) (all []string) {
	for i := range kinds {
		k := &kinds[i]
		mine := k.carries()
		if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(mine, name) }) {
			continue
		}
		for _, name := range append(mine, k.foreign...) {
			if !slices.Contains(names, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// Secrets returns what of it must stand in no log.
func (s Set) Secrets() (all []string) {
	for i := range kinds {
		for _, name := range kinds[i].secret {
			if v := s[name]; v != "" {
				all = append(all, v)
			}
		}
	}
	for line := range strings.Lines(s[awsFile]) {
		if name, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(name, "aws_access_key_id") {
			all = append(all, strings.TrimSpace(value))
		}
	}
	var key map[string]any
	if json.Unmarshal([]byte(s[googleFile]), &key) == nil {
		for _, name := range []string{"private_key", "client_secret", "refresh_token"} {
			if v, _ := key[name].(string); v != "" {
				all = append(all, v)
			}
		}
	}
	return all
}
