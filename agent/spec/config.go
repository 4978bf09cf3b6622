package spec

import (
	"net/url"
	"time"
)

// Config is the host configuration, /etc/hostler/hostler.yaml. DefaultConfig
// holds what is not said there.
type Config struct {
	// Namespace is part of every stamp: agents with different ones never meet.
	Namespace string `json:"namespace"`
	// Harvest is none, unknown, destroyed or all.
	Harvest string `json:"harvest"`
	// Removals is hold or obey: whether objects with data that no document
	// declares any more wait for consent.
	Removals string `json:"removals"`
	// MaxMachines is how many machines the host takes.
	MaxMachines int `json:"max-machines"`
	// Concurrency is how many instance operations run at once, per type.
	Concurrency int `json:"concurrency"`
	// StartRetries is how often a start that failed is tried again, RetryDelay
	// apart; TransientRetryInterval is how often errored machines are retried.
	StartRetries           int          `json:"start-retries"`
	RetryDelay             Duration     `json:"retry-delay"`
	TransientRetryInterval Duration     `json:"transient-retry-interval"`
	Types                  TypesConfig  `json:"types"`
	Proxy                  ProxyConfig  `json:"proxy"`
	Apt                    AptConfig    `json:"apt"`
	Images                 ImagesConfig `json:"images"`
	// AuthorizedKeys are given to every machine, besides its own.
	AuthorizedKeys []string    `json:"authorized-keys"`
	API            APIConfig   `json:"api"`
	Guard          GuardConfig `json:"guard"`
}

// The words of Config.Removals.
const (
	RemovalsHold = "hold"
	RemovalsObey = "obey"
)

// GuardConfig is how changes of the host's own network are guarded.
type GuardConfig struct {
	// Probes are addresses that must stay reachable, besides the default
	// gateways and where the person came from who made the change.
	Probes []string `json:"probes"`
}

// TypesConfig is what is configured per container type.
type TypesConfig struct {
	LXD LXDConfig `json:"lxd"`
	KVM KVMConfig `json:"kvm"`
}

// LXDConfig configures containers of LXD.
type LXDConfig struct {
	Pool string `json:"pool"`
	MTU  int    `json:"mtu"`
	// NetworkMethod is local (LXD's own bridge) or provider (bridges that
	// are made elsewhere).
	NetworkMethod string `json:"network-method"`
}

// KVMConfig configures KVM guests.
type KVMConfig struct {
	// Accelerator is auto, kvm or tcg.
	Accelerator string `json:"accelerator"`
	Pool        string `json:"pool"`
}

// ProxyConfig is the proxy that the host and its guests use. HTTP and HTTPS
// are URLs; No is a list with commas.
type ProxyConfig struct {
	HTTP  string `json:"http"`
	HTTPS string `json:"https"`
	No    string `json:"no"`
}

// WithoutProxyUsers returns the configuration with the addresses of its proxies
// as machines and provisioners are given them: a user name and a password in
// such an address are the host's alone.
func (c Config) WithoutProxyUsers() Config {
	for _, address := range []*string{&c.Proxy.HTTP, &c.Proxy.HTTPS, &c.Apt.Proxy} {
		if u, err := url.Parse(*address); err != nil {
			*address = ""
		} else if u.User != nil {
			u.User = nil
			*address = u.String()
		}
	}
	return c
}

// AptConfig is where packages come from; URLs.
type AptConfig struct {
	Mirror string `json:"mirror"`
	Proxy  string `json:"proxy"`
}

// ImagesConfig is where images come from.
type ImagesConfig struct {
	// Sources are asked in order: local, build, simplestreams:NAME.
	Sources []string `json:"sources"`
	// Servers gives the https URL of each simplestreams NAME.
	Servers map[string]string `json:"servers,omitempty"`
	// Refresh is never, or a duration: how old an image by name may get before
	// its source is asked again.
	Refresh string `json:"refresh"`
}

// RefreshEvery returns how old an image may get; zero for never.
func (i ImagesConfig) RefreshEvery() time.Duration {
	d, err := ParseDuration(i.Refresh)
	if err != nil {
		return 0
	}
	return d.Std()
}

// APIConfig is where the API listens besides its unix socket, and what readers
// see by it.
type APIConfig struct {
	// Listen is to be ADDRESS:PORT; this agent accepts only the empty text: the
	// unix socket only.
	Listen string `json:"listen"`
	// ReadersSeeConsoles gives members of the group hostler what machines write
	// to their consoles, passwords that a first boot prints among it.
	ReadersSeeConsoles bool `json:"readers-see-consoles"`
}

// DefaultConfig is the configuration of a host without a file.
func DefaultConfig() Config {
	return Config{
		Namespace:              "hostler",
		Harvest:                "destroyed",
		Removals:               RemovalsHold,
		MaxMachines:            2000,
		Concurrency:            4,
		StartRetries:           10,
		RetryDelay:             Duration(10 * time.Second),
		TransientRetryInterval: Duration(60 * time.Second),
		Types: TypesConfig{
			LXD: LXDConfig{Pool: "default", MTU: 1500, NetworkMethod: "local"},
			KVM: KVMConfig{Accelerator: "auto", Pool: "default"},
		},
		Images: ImagesConfig{Sources: []string{"local", "build"}, Refresh: "never"},
	}
}
