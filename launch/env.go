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

// variables are what the launcher sets for one worker.
type variables struct {
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

// list returns them as NAME=VALUE: ours, Horovod's and those of torch.distributed and jax.distributed.
func (v *variables) list() []string {
	host, port := v.addr, ""
	if i := strings.LastIndexByte(v.addr, ':'); i >= 0 {
		host, port = strings.Trim(v.addr[:i], "[]"), v.addr[i+1:]
	}
	var out []string
	set := func(name, value string) { out = append(out, name+"="+value) }
	num := func(name string, n int) { set(name, strconv.Itoa(n)) }
	for _, prefix := range [...]string{"HORA_", "HOROVOD_"} {
		num(prefix+"RANK", v.seat.Rank)
		num(prefix+"SIZE", v.size)
		num(prefix+"LOCAL_RANK", v.seat.LocalRank)
		num(prefix+"LOCAL_SIZE", v.seat.LocalSize)
		num(prefix+"CROSS_RANK", v.seat.CrossRank)
		num(prefix+"CROSS_SIZE", v.seat.CrossSize)
	}
	set("HORA_HOST", v.host)
	set("HORA_JOB", v.job)
	set("HORA_EPOCH", strconv.FormatUint(v.epoch, 10))
	set("HORA_ADDR", v.addr)
	set("HORA_SERVE", "0") // the launcher does; of ranks that are started by hand rank 0
	if len(v.listen) > 0 {
		set("HORA_LISTEN", strings.Join(machine.WithPort(v.listen, 0), ","))
	}
	set("HOROVOD_HOSTNAME", v.host)
	set("HOROVOD_GLOO_RENDEZVOUS_ADDR", host)
	set("HOROVOD_GLOO_RENDEZVOUS_PORT", port)
	set("HOROVOD_CONTROLLER", "gloo")
	set("HOROVOD_CPU_OPERATIONS", "gloo")
	switch {
	case len(v.interfaces) == 0 && (host == "127.0.0.1" || host == "::1") && v.masterHost == host:
		set("HOROVOD_GLOO_IFACE", "lo")
	case len(v.interfaces) > 0:
		set("HOROVOD_GLOO_IFACE", v.interfaces[0])
		set("NCCL_SOCKET_IFNAME", strings.Join(v.interfaces, ","))
	}
	if v.join > 0 { // the launcher ends a wait that is too long, and says for whom it was
		num("HORA_JOIN_TIMEOUT", int((v.join+time.Second-1+behind)/time.Second))
	}
	if v.progress {
		set("HORA_PROGRESS", "1")
	}
	if v.elastic {
		set("HOROVOD_ELASTIC", "1")
	}
	if v.wait > 0 { // the launcher ends a job that waits for too long, and says what for
		num("HORA_ELASTIC_TIMEOUT", int((v.wait+time.Second-1+behind)/time.Second))
	}
	num("RANK", v.seat.Rank)
	num("WORLD_SIZE", v.size)
	num("LOCAL_RANK", v.seat.LocalRank)
	num("LOCAL_WORLD_SIZE", v.seat.LocalSize)
	set("MASTER_ADDR", v.masterHost)
	num("MASTER_PORT", v.masterPort)
	jax := net.JoinHostPort(v.masterHost, strconv.Itoa(machine.Second(v.masterPort)))
	set("JAX_COORDINATOR_ADDRESS", jax)
	if ip := net.ParseIP(v.masterHost); ip != nil && ip.IsLoopback() { // JAX would listen at all addresses
		set("JAX_COORDINATOR_BIND_ADDRESS", jax)
	}
	if v.gpus > 0 {
		set(environ.VisibleDevices, devices(v.visible, v.device, v.gpus))
	}
	return out
}
