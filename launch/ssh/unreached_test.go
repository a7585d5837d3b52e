package ssh

import (
	"strings"
	"testing"

	"hora/launch/protocol"
)

// What a user is told to type reaches the host by the same port and key.
func TestAdviceHasThePortAndTheKey(t *testing.T) {
	const changed = "@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nOffending ED25519 key in /home/me/.ssh/known_hosts:3\n"
	for _, c := range []struct {
		ssh        Options
		host, said string
		want       string
		code       int
	}{
		{Options{}, "a", changed + "Host key for a has changed and you have requested strict checking.\nHost key verification failed.\n", "run ssh-keygen -R a", protocol.ExitHost},
		{Options{Port: 2222}, "me@a", changed + "Host key verification failed.\n", "run ssh-keygen -R '[a]:2222'", protocol.ExitHost},
		{Options{}, "a", changed + "Host key for [10.0.0.1]:2200 has changed and you have requested strict checking.\n", "run ssh-keygen -R '[10.0.0.1]:2200'", protocol.ExitHost},
		{Options{Port: 22}, "a", "Host key verification failed.\n", "run ssh-keygen -R a", protocol.ExitHost},
		{Options{}, "a", "root@a: Permission denied (publickey).\n", "set up a key with ssh-keygen -t ed25519 and ssh-copy-id a", protocol.ExitHost},
		{Options{Port: 2222}, "a", "root@a: Permission denied (publickey).\n", "ssh-keygen -t ed25519 and ssh-copy-id -p 2222 a", protocol.ExitHost},
		{Options{Port: 2222, Identity: "my key"}, "a", "root@a: Permission denied (publickey).\n", "set up a key with ssh-copy-id -p 2222 -i 'my key' a", protocol.ExitHost},
		{Options{Port: 2222}, "a", "ssh: connect to host a port 2222: Connection refused\n", "start sshd at port 2222 there, or correct --ssh-port", protocol.ExitHost},
		{Options{}, "a", "ssh: connect to host a port 22: Connection refused\n", "start sshd there, or give --ssh-port", protocol.ExitHost},
		{Options{Port: 2222, Identity: "k"}, "a", "something new\n", "something new: try ssh -p 2222 -i k a true", protocol.ExitHost},
		{Options{}, "a", "", "ended without a word: try ssh a true", protocol.ExitHost},
		{Options{RemoteHora: "/no/hora"}, "a", "sh: 1: exec: /no/hora: Permission denied\n", "--remote-hora /no/hora cannot be started there", protocol.ExitHost},
		{Options{Port: 2222}, "a", "ssh: Could not resolve hostname a: Name or service not known\n", "correct the name", protocol.ExitNoHost},
	} {
		if got := c.ssh.fault(c.host, c.said); got.Code != c.code ||
			!strings.HasPrefix(got.Text, "reach host "+c.host+": ") || !strings.Contains(got.Text, c.want) {
			t.Errorf("%+v of %q: %d %q, want %q", c.ssh, c.said, got.Code, got.Text, c.want)
		}
	}
}
