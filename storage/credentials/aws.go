package credentials

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AWS are keys to Amazon's storage, and to what speaks as it does.
type AWS struct{ ID, Secret, Token string }

// FindAWS takes keys from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or from the profile
// AWS_PROFILE of the file that Amazon's tools write; without any it returns none.
func FindAWS(lookup func(string) string) (AWS, error) {
	k := AWS{lookup("AWS_ACCESS_KEY_ID"), lookup("AWS_SECRET_ACCESS_KEY"), lookup("AWS_SESSION_TOKEN")}
	if k.ID != "" {
		return k, nil
	}
	return sharedKeys(lookup)
}

// sharedKeys reads the profile's keys from the file that Amazon's tools write.
func sharedKeys(lookup func(string) string) (AWS, error) {
	name, profile := lookup(awsFile), lookup("AWS_PROFILE")
	asked := name != "" || profile != ""
	if name == "" {
		name = filepath.Join(lookup("HOME"), ".aws", "credentials")
	}
	if profile == "" {
		profile = "default"
	}
	f, err := os.Open(name)
	if err != nil {
		if !asked {
			return AWS{}, nil
		}
		if e := (*fs.PathError)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return AWS{}, fmt.Errorf("read keys from %s: %w: set %s to the file that is meant", name, err, awsFile)
	}
	defer f.Close()
	var k AWS
	section := ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = strings.TrimSpace(strings.Trim(line, "[]"))
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		if section != profile {
			continue
		}
		switch value = strings.TrimSpace(value); strings.TrimSpace(name) {
		case "aws_access_key_id":
			k.ID = value
		case "aws_secret_access_key":
			k.Secret = value
		case "aws_session_token":
			k.Token = value
		}
	}
	if err := lines.Err(); err != nil {
		return AWS{}, fmt.Errorf("read keys from %s: %w", name, err)
	}
	if k.ID == "" && asked {
		return k, fmt.Errorf("read keys from %s: there are none for profile %q; set AWS_PROFILE to one that is there", name, profile)
	}
	return k, nil
}

// file is the one that Amazon's tools read, with these keys for who names no profile.
func (k AWS) file() string {
	text := "[default]\naws_access_key_id = " + k.ID + "\naws_secret_access_key = " + k.Secret + "\n"
	if k.Token != "" {
		text += "aws_session_token = " + k.Token + "\n"
	}
	return text
}
