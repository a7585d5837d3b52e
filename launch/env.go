package launch

import (
	"net"
	"strconv"
	"strings"
	"time"

	"hora/launch/environ"
	"hora/launch/machine"
)

// behind is how much longer than the launcher a worker waits for the next epoch.
const behind = 10 * time.Second

// place is what the environment of one worker is made of.
type place struct {
	seat       Seat
	size       int
	host, job  string
	epoch      uint64
	addr       string // of the coordinator, "host:port"
	masterHost string
	masterPort int
	elastic    bool
	wait       time.Duration // how long an elastic job waits for workers; 0 where they are told otherwise
	join       time.Duration // how long the launcher waits for those that have not joined
	progress   bool
	interfaces []string
	listen     []string
	gpus       int
	device     int      // whose turn it is when its machine's devices are dealt
	visible    []string // the devices to deal from; nil: counted from 0
}

// variables returns what the launcher sets for one worker: ours, Horovod's and those of torch.distributed and
// jax.distributed.
func (p *place) variables() []string {
	host, port := p.addr, ""
	if i := strings.LastIndexByte(p.addr, ':'); i >= 0 {
		host, port = strings.Trim(p.addr[:i], "[]"), p.addr[i+1:]
	}
	var out []string
	set := func(name, value string) { out = append(out, name+"="+value) }
	num := func(name string, v int) { set(name, strconv.Itoa(v)) }
	for _, prefix := range [...]string{"HORA_", "HOROVOD_"} {
		num(prefix+"RANK", p.seat.Rank)
		num(prefix+"SIZE", p.size)
		num(prefix+"LOCAL_RANK", p.seat.LocalRank)
		num(prefix+"LOCAL_SIZE", p.seat.LocalSize)
		num(prefix+"CROSS_RANK", p.seat.CrossRank)
		num(prefix+"CROSS_SIZE", p.seat.CrossSize)
	}
	set("HORA_HOST", p.host)
	set("HORA_JOB", p.job)
	set("HORA_EPOCH", strconv.FormatUint(p.epoch, 10))
	set("HORA_ADDR", p.addr)
	set("HORA_SERVE", "0") // the launcher does; of ranks that are started by hand rank 0
	if len(p.listen) > 0 {
		set("HORA_LISTEN", strings.Join(machine.WithPort(p.listen, 0), ","))
	}
	set("HOROVOD_HOSTNAME", p.host)
	set("HOROVOD_GLOO_RENDEZVOUS_ADDR", host)
	set("HOROVOD_GLOO_RENDEZVOUS_PORT", port)
	set("HOROVOD_CONTROLLER", "gloo")
	set("HOROVOD_CPU_OPERATIONS", "gloo")
	switch {
	case len(p.interfaces) == 0 && (host == "127.0.0.1" || host == "::1") && p.masterHost == host:
		set("HOROVOD_GLOO_IFACE", "lo")
	case len(p.interfaces) > 0:
		set("HOROVOD_GLOO_IFACE", p.interfaces[0])
		set("NCCL_SOCKET_IFNAME", strings.Join(p.interfaces, ","))
	}
	if p.join > 0 { // the launcher ends a wait that is too long, and says for whom it was
		num("HORA_JOIN_TIMEOUT", int((p.join+time.Second-1+behind)/time.Second))
	}
	if p.progress {
		set("HORA_PROGRESS", "1")
	}
	if p.elastic {
		set("HOROVOD_ELASTIC", "1")
	}
	if p.wait > 0 { // the launcher ends a job that waits for too long, and says what for
		num("HORA_ELASTIC_TIMEOUT", int((p.wait+time.Second-1+behind)/time.Second))
	}
	num("RANK", p.seat.Rank)
	num("WORLD_SIZE", p.size)
	num("LOCAL_RANK", p.seat.LocalRank)
	num("LOCAL_WORLD_SIZE", p.seat.LocalSize)
	set("MASTER_ADDR", p.masterHost)
	num("MASTER_PORT", p.masterPort)
	jax := net.JoinHostPort(p.masterHost, strconv.Itoa(machine.Second(p.masterPort)))
	set("JAX_COORDINATOR_ADDRESS", jax)
	if ip := net.ParseIP(p.masterHost); ip != nil && ip.IsLoopback() { // JAX would listen at all addresses
		set("JAX_COORDINATOR_BIND_ADDRESS", jax)
	}
	if p.gpus > 0 {
		set(environ.VisibleDevices, devices(p.visible, p.device, p.gpus))
	}
	return out
}
