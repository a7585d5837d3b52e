package machine

import (
	"net"
	"strings"
	"testing"
)

func TestAddressesOfContainersComeLastAndLoopbackNever(t *testing.T) {
	list := []string{"docker0 172.17.0.1", "eth0 fd00::5", "br-1a2b 172.18.0.1", "eth0 10.0.0.5", "no address", "virbr0 192.168.122.1", "eth1 10.1.0.5", "docker0 fd01::1"}
	for names, want := range map[string]string{
		"":             "10.0.0.5 10.1.0.5 fd00::5 172.17.0.1 172.18.0.1 192.168.122.1 fd01::1",
		"eth1":         "10.1.0.5",
		"eth0 docker0": "10.0.0.5 fd00::5 172.17.0.1 fd01::1",
		"nosuch0":      "",
	} {
		if got := strings.Join(Pick(list, strings.Fields(names)), " "); got != want {
			t.Errorf("of interfaces %q: %s, want %s", names, got, want)
		}
	}
	for _, a := range Addresses() {
		if _, addr, _ := strings.Cut(a, " "); net.ParseIP(addr) == nil || net.ParseIP(addr).IsLoopback() {
			t.Errorf("%q is among this machine's addresses", a)
		}
	}
}
