package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// User is whom jobs run as where a node is root's. Their keepers run as that user from their start, and the folders of
// attempts, environments and the home below the node's are that user's. What the node itself does in those folders it
// does with that user's rights too: a job may put a link to anything there, and leads nobody further than it comes by
// itself. A nil one stands for the node's own user.
type User struct {
	Name, Home string
	UID, GID   uint32
	Groups     []uint32
}

// FindUser reads --run-as: a user's name, a number, or the numbers of a user and a group.
func FindUser(text string) (*User, error) {
	if err := mayRunAs(); err != nil {
		return nil, err
	}
	found, err := user.Lookup(text)
	if err != nil {
		found, err = user.LookupId(text)
	}
	u := &User{Name: text}
	if err == nil {
		u.Name, u.Home = found.Username, found.HomeDir
		all, _ := found.GroupIds()
		for _, g := range append([]string{found.Gid}, all...) {
			if n, err := strconv.ParseUint(g, 10, 32); err == nil && !slices.Contains(u.Groups, uint32(n)) {
				u.Groups = append(u.Groups, uint32(n))
			}
		}
		text = found.Uid + ":" + found.Gid
	}
	id, group, two := strings.Cut(text, ":")
	if !two {
		group = id
	}
	uid, err := strconv.ParseUint(id, 10, 31)
	gid, err2 := strconv.ParseUint(group, 10, 31)
	switch {
	case err != nil || err2 != nil:
		return nil, fmt.Errorf("--run-as %s: this machine has no such user: make it, or give the numbers of a user and a group, as 1000:1000", text)
	case uid == 0:
		return nil, fmt.Errorf("--run-as %s is root itself: give a user who may do little, or leave it out", text)
	case gid == 0 || slices.Contains(u.Groups, 0):
		return nil, fmt.Errorf("--run-as %s is in root's group, and could read what is root's: give another user or group", text)
	}
	u.UID, u.GID = uint32(uid), uint32(gid)
	return u, nil
}

// The folders of a node's that its jobs write to.
const (
	AttemptsName = "attempts"
	homeName     = "home"
)

// Own gives the user the folders that jobs need below a node's, and sees that the way there and the program that keeps
// jobs are open to the user. Without a user it makes the folder of attempts, and refuses one that was another user's:
// its jobs may have left links there, which would be followed with root's rights.
func (u *User) Own(dir, hora string) error {
	names := []string{AttemptsName}
	if u != nil {
		names = append(names, EnvironmentsName, homeName)
		if err := os.Chmod(dir, 0o711); err != nil { // its files are the node's user's alone
			return err
		}
	}
	for _, name := range names {
		if err := u.own(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if u == nil {
		return nil
	}
	if u.Home == "" {
		u.Home = filepath.Join(dir, homeName)
	}
	return u.as(func() error {
		if _, err := os.Stat(filepath.Join(dir, AttemptsName, ".")); err != nil {
			return fmt.Errorf("user %s does not get into %s: %w: give a --dir on whose way each folder is open to all (mode 711), as below /var/lib", u.Name, dir, err)
		}
		f, err := os.Open(hora)
		if err != nil {
			return fmt.Errorf("user %s may not run %s: %w: install hora where all may read it", u.Name, hora, err)
		}
		return f.Close()
	})
}

func (u *User) own(at string) error {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	owner, uid := ownerOf(info), uint32(os.Geteuid())
	if u != nil {
		uid = u.UID
	}
	if owner == uid {
		return nil
	}
	if entries, err := os.ReadDir(at); err != nil || len(entries) > 0 || u == nil {
		return fmt.Errorf("%s is of user %d, for whom jobs ran there: start this with --run-as %d again, or give another --dir", at, owner, owner)
	}
	return os.Chown(at, int(u.UID), int(u.GID))
}

// Environ is what jobs of this user inherit of an environment: its own home, and nothing of a login of somebody else's.
func (u *User) Environ(all []string) []string {
	if u == nil {
		return all
	}
	var own []string
	for _, kv := range all {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL", "MAIL", "TMPDIR"}, name):
		case strings.HasPrefix(name, "XDG_"), strings.HasPrefix(name, "SUDO_"), strings.HasPrefix(name, "SSH_"):
		default:
			own = append(own, kv)
		}
	}
	return append(own, "HOME="+u.Home, "USER="+u.Name, "LOGNAME="+u.Name)
}

// opened calls the node's own way to content with the node's own rights, from where the user's hold.
func (l *Local) opened(hash string) (in io.ReadCloser, err error) {
	if l.User == nil {
		return l.Open(hash)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in, err = l.Open(hash)
	}()
	<-done
	return in, err
}

// errNotRegular is for what is no file where a file of outputs/ was.
var errNotRegular = errors.New("it is no file")
