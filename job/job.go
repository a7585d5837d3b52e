// Package job says what a job is: [Spec], as Go, JSON and YAML of one schema, and the states that a job goes through.
//
// One table, [Fields], has each setting once: its name in a file and among Python's keyword arguments, its flags, its
// place in Horovod's configuration file, the variable of torchrun's that is its default, the variables by which workers
// hear of it, and its sentence of help. What reads or writes a job goes through that table.
//
// The package is pure: it opens no file, reads no environment, has no clock and no goroutine. What only the process
// that starts a job has (its streams, its signals, its own path) is no part of a job: see launch.Place.
package job

import "time"

// Spec is one job. Command is required; the zero value of the rest leaves the choice to who starts the job.
type Spec struct {
	Name    string            `json:"name,omitempty"` // in messages
	Command []string          `json:"command,omitempty"`
	Dir     string            `json:"dir,omitempty"` // where workers start; "" is the folder of who starts the job
	Env     map[string]string `json:"env,omitempty"` // for the workers, over all else that sets their environment

	NP          int  `json:"np,omitempty"` // 0: the slots of Hosts or Hostfile, else 1
	Bind        Bind `json:"bind,omitempty"`
	GPUsPerRank int  `json:"gpus_per_rank,omitempty"` // 0 leaves CUDA_VISIBLE_DEVICES as it is
	TLS         bool `json:"tls,omitempty"`

	// StartTimeout is until every host has answered and, where it is set, until all ranks have joined.
	StartTimeout time.Duration `json:"start_timeout,omitempty"`
	PeerTimeout  time.Duration `json:"peer_timeout,omitempty"` // a rank or host silent for so long is lost

	Legacy Legacy `json:"legacy,omitempty"` // which old names exist in today's frameworks

	Hosts           string   `json:"hosts,omitempty"`    // "h1:4,h2:4"
	Hostfile        string   `json:"hostfile,omitempty"` // a file with lines "name slots=N"
	Discover        string   `json:"discover,omitempty"` // a program that prints the hosts at hand
	SlotsPerHost    int      `json:"slots_per_host,omitempty"`
	SSHPort         int      `json:"ssh_port,omitempty"`
	SSHIdentityFile string   `json:"ssh_identity_file,omitempty"`
	RemoteHora      string   `json:"remote_hora,omitempty"`
	Port            int      `json:"port,omitempty"` // of the coordinator; 0 takes a free one
	Interfaces      []string `json:"network_interfaces,omitempty"`

	MinNP             int           `json:"min_np,omitempty"`
	MaxNP             int           `json:"max_np,omitempty"`
	Restarts          int           `json:"restarts,omitempty"`    // how many losses the job survives
	ResetLimit        int           `json:"reset_limit,omitempty"` // how often it may begin anew; Restarts too, where that is 0
	OnLoss            OnLoss        `json:"on_loss,omitempty"`
	ElasticTimeout    time.Duration `json:"elastic_timeout,omitempty"`
	Blacklist         Blacklist     `json:"blacklist,omitempty"`
	BlacklistCooldown Cooldown      `json:"blacklist_cooldown_range,omitzero"`
	DrainOn           string        `json:"drain_on,omitempty"` // a file, or after "sh:" a command, that gives notice of a host's end
	CoordinatorState  string        `json:"coordinator_state,omitempty"`

	LogDir     string `json:"log_dir,omitempty"`
	TagOutput  *bool  `json:"tag_output,omitempty"` // nil: yes, except where somebody answers prompts
	Timestamps bool   `json:"prefix_output_with_timestamp,omitempty"`
	Events     string `json:"events,omitempty"`
	Report     string `json:"report,omitempty"`

	Timeline           string         `json:"timeline,omitempty"`
	TimelineMarkCycles *bool          `json:"timeline_mark_cycles,omitempty"`
	FusionThresholdMB  *float64       `json:"fusion_threshold_mb,omitempty"`
	CacheCapacity      *int           `json:"cache_capacity,omitempty"`
	StallCheck         *bool          `json:"stall_check,omitempty"`
	StallWarning       *time.Duration `json:"stall_check_warning_time_seconds,omitempty"`
	StallShutdown      *time.Duration `json:"stall_check_shutdown_time_seconds,omitempty"`
	GlooTimeout        time.Duration  `json:"gloo_timeout_seconds,omitempty"`
}

// Bind says to which cores a worker is bound.
type Bind string

// The ways to bind; without one it is BindCore.
const (
	BindCore Bind = "core" // an equal share of the host's cores each
	BindNone Bind = "none"
)

// Legacy names what scripts were written for.
type Legacy string

// TF1 gives today's TensorFlow and Keras the names of TensorFlow 1 and Keras 2 that they lack.
const TF1 Legacy = "tf1"

// OnLoss says what becomes of a job that has lost a worker.
type OnLoss string

// What is done after a loss; without one the job ends.
const (
	Continue OnLoss = "continue" // the others go on as fewer
	Replace  OnLoss = "replace"  // they wait for a replacement
)

// Blacklist says what a failed worker takes away.
type Blacklist string

// What may be taken away.
const (
	BySlot Blacklist = "slot"
	ByHost Blacklist = "host"
)

// Cooldown is the pause after which a lost host is tried again, from Min, doubled each time, to Max; zero is never.
type Cooldown struct{ Min, Max time.Duration }

// LikeHorovod reports whether a setting is used that makes a job elastic as horovodrun means it: the others go on
// without a lost worker, and a failure takes its host away.
func (s *Spec) LikeHorovod() bool {
	return s.MinNP > 0 || s.MaxNP > 0 || s.SlotsPerHost > 0 || s.ElasticTimeout > 0 || s.ResetLimit > 0 ||
		s.BlacklistCooldown != Cooldown{}
}

// AfterLoss returns what is done when a worker is lost, as the settings together mean it; "" ends the job.
func (s *Spec) AfterLoss() OnLoss {
	switch {
	case s.OnLoss != "":
		return s.OnLoss
	case s.LikeHorovod():
		return Continue
	case s.Restarts > 0:
		return Replace
	}
	return ""
}

// TakesHost reports whether a failed worker takes its whole host away.
func (s *Spec) TakesHost() bool {
	return s.Blacklist == ByHost || s.Blacklist == "" && s.LikeHorovod()
}

// Tagged reports whether lines of output begin with their rank.
func (s *Spec) Tagged() bool { return s.TagOutput == nil || *s.TagOutput }
