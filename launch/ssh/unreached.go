package ssh

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"hora/event"
	"hora/launch/protocol"
)

// fault turns what ssh said into a sentence and an exit code. What it tells the user to type reaches the host as the
// launcher does: by the same port and key.
func (s *Options) fault(host, all string) *protocol.Error {
	said := sshWords(all)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(said, p) })
	}
	switch {
	case s.RemoteHora != "" && has(s.RemoteHora):
		return protocol.Fault(protocol.ExitHost, "reach host %s: --remote-hora %s cannot be started there (%s): correct the path, or leave --remote-hora away", host, s.RemoteHora, said)
	case has("Could not resolve", "Name or service not known", "nodename nor servname"):
		return protocol.Fault(protocol.ExitNoHost, "reach host %s: %s: correct the name, or add it to ~/.ssh/config or /etc/hosts", host, said)
	case has("IDENTIFICATION HAS CHANGED", "Host key verification failed"):
		return protocol.Fault(protocol.ExitHost, "reach host %s: its ssh host key is not the one known here: if the host was reinstalled, run ssh-keygen -R %s", host, s.knownAs(host, all))
	case has("Permission denied", "Too many authentication failures"):
		return protocol.Fault(protocol.ExitHost, "reach host %s: it refuses ssh (%s): set up a key with %s", host, said, s.keyCommands(host))
	case has("Connection refused") && s.Port > 0:
		return protocol.Fault(protocol.ExitHost, "reach host %s: it refuses connections to its ssh port (%s): start sshd at port %d there, or correct --ssh-port", host, said, s.Port)
	case has("Connection refused"):
		return protocol.Fault(protocol.ExitHost, "reach host %s: it refuses connections to its ssh port (%s): start sshd there, or give --ssh-port", host, said)
	case has("timed out", "not responding", "No route to host", "unreachable"):
		return protocol.Fault(protocol.ExitHost, "reach host %s: %s: look whether it is up and the network to it works", host, said)
	case said == "":
		return protocol.Fault(protocol.ExitHost, "reach host %s: ssh ended without a word: try %s true", host, s.typed(host))
	}
	return protocol.Fault(protocol.ExitHost, "reach host %s: %s: try %s true", host, said, s.typed(host))
}

// typed returns how a user reaches the host by hand.
func (s *Options) typed(host string) string {
	words := []string{"ssh"}
	if s.Port > 0 {
		words = append(words, "-p", strconv.Itoa(s.Port))
	}
	if s.Identity != "" {
		words = append(words, "-i", quoted(s.Identity))
	}
	return strings.Join(append(words, host), " ")
}

// keyCommands returns what makes the host take a key: the one that was named, else a new one.
func (s *Options) keyCommands(host string) string {
	text := strings.Replace(s.typed(host), "ssh", "ssh-copy-id", 1)
	if s.Identity == "" {
		text = "ssh-keygen -t ed25519 and " + text
	}
	return text
}

// changedKey is how ssh names what it knows another key of.
var changedKey = regexp.MustCompile(`Host key for (\S+) has changed`)

// knownAs returns a host's name in the file of known hosts, which has the port in it when that is not ssh's own.
func (s *Options) knownAs(host, said string) string {
	if m := changedKey.FindStringSubmatch(said); m != nil {
		return quoted(m[1])
	}
	if _, name, ok := strings.Cut(host, "@"); ok {
		host = name
	}
	if s.Port > 0 && s.Port != 22 {
		host = "[" + host + "]:" + strconv.Itoa(s.Port)
	}
	return quoted(host)
}

// quoted guards what a shell would take for more than a word.
func quoted(s string) string {
	if strings.ContainsAny(s, " []*?'\"\\$`();&|<>") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// sshWords picks the telling line of ssh's standard error.
func sshWords(said string) string {
	last := ""
	for line := range strings.Lines(said) {
		line = strings.TrimRight(strings.TrimSpace(line), ".")
		switch {
		case line == "", strings.HasPrefix(line, "Warning: Permanently added"), strings.HasPrefix(line, "@@@"):
		case strings.Contains(line, "IDENTIFICATION HAS CHANGED"):
			return event.OneLine(line)
		default:
			last = line
		}
	}
	return event.OneLine(strings.TrimPrefix(last, "ssh: "))
}
