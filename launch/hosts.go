package launch

import (
	"net/netip"
	"strconv"
	"strings"
)

// Slots counts the slots of hosts.
func Slots(hosts []Host) int {
	n := 0
	for _, h := range hosts {
		n += h.Slots
	}
	return n
}

// ParseHosts reads "h1:2,h2:4"; a host without a number has one slot.
func ParseHosts(s string) ([]Host, error) {
	var hosts []Host
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		h := Host{Name: part, Slots: 1}
		if i := strings.LastIndexByte(part, ':'); i >= 0 {
			n, err := strconv.Atoi(part[i+1:])
			if err != nil || n < 1 {
				return nil, fault(ExitUsage, "-H %s: %q has no number of slots above 0 after the colon: write it as %s:4", s, part, orName(part[:i]))
			}
			h.Name, h.Slots = part[:i], n
		}
		if err := checkHost(h.Name); err != "" {
			return nil, fault(ExitUsage, "-H %s: %s: write hosts as server1:4,server2:4", s, err)
		}
		for _, o := range hosts {
			if o.Name == h.Name {
				return nil, fault(ExitUsage, "-H %s: host %s is there twice: name it once with all its slots", s, h.Name)
			}
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

func orName(s string) string {
	if s == "" {
		return "server1"
	}
	return s
}

// checkHost says what is wrong with a host's name, or "". A name that begins with a dash could be an option of ssh.
func checkHost(name string) string {
	switch {
	case name == "":
		return "a host has no name"
	case strings.HasPrefix(name, "-"):
		return strconv.Quote(name) + " is no host name"
	case strings.Contains(name, ":") && !isAddress(name): // what is left of a name with two numbers
		return strconv.Quote(name) + " is no host name"
	case strings.ContainsAny(name, " \t\r\n\"'`$;|&<>()\\"):
		return strconv.Quote(name) + " is no host name"
	}
	return ""
}

func isAddress(name string) bool {
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	return err == nil
}

// ParseHostfile reads lines "name slots=N", "name:N" or "name"; # begins a comment.
func ParseHostfile(path, text string) ([]Host, error) {
	var hosts []Host
	line := 0
	bad := func(why string) ([]Host, error) {
		return nil, fault(ExitUsage, "%s:%d: %s: write lines such as \"server1 slots=4\"", path, line, why)
	}
	for raw := range strings.Lines(text) {
		line++
		raw, _, _ = strings.Cut(raw, "#")
		f := strings.Fields(raw)
		if len(f) == 0 {
			continue
		}
		h := Host{Name: f[0], Slots: 1}
		if i := strings.LastIndexByte(f[0], ':'); i >= 0 && strings.Count(f[0], ":") == 1 {
			h.Name = f[0][:i]
			f = append([]string{h.Name, "slots=" + f[0][i+1:]}, f[1:]...)
		}
		if why := checkHost(h.Name); why != "" {
			return bad(why)
		}
		for _, o := range hosts {
			if o.Name == h.Name {
				return bad("host " + h.Name + " is there twice")
			}
		}
		for _, word := range f[1:] {
			key, v, _ := strings.Cut(word, "=")
			switch strings.ToLower(key) {
			case "slots", "max_slots", "max-slots":
				n, err := strconv.Atoi(v)
				if err != nil || n < 1 {
					return bad(strconv.Quote(word) + " is no number of slots above 0")
				}
				if strings.ToLower(key) == "slots" {
					h.Slots = n
				}
			default:
				return bad(strconv.Quote(word) + " is not slots=N")
			}
		}
		hosts = append(hosts, h)
	}
	if len(hosts) == 0 {
		return nil, fault(ExitUsage, "%s:%d: there is no host: write lines such as \"server1 slots=4\"", path, max(line, 1))
	}
	return hosts, nil
}
