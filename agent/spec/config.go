package spec

import (
	"net/url"
	"time"
)

// Config is the host configuration, /etc/hostler/hostler.yaml. A key that is
// missing in the file has its value of DefaultConfig().
type Config struct {
	// Namespace is part of every stamp, so agents with different namespaces ignore
	// each other's objects.
	Namespace string `json:"namespace"`
	// Harvest is the harvest mode: none, unknown, destroyed or all.
	Harvest string `json:"harvest"`
	// Removals is hold or obey. With hold, an object with data that no document
	// declares any more is removed only with consent. With obey it is removed at
	// once.
	Removals string `json:"removals"`
	// MaxMachines is the maximum number of machines on the host.
	MaxMachines int `json:"max-machines"`
	// Concurrency is the number of simultaneous instance operations per container
	// type.
	Concurrency int `json:"concurrency"`
	// StartRetries is how often a failed operation on a machine is retried with
	// RetryDelay between two tries. After these retries, it is retried every
	// TransientRetryInterval.
	StartRetries           int          `json:"start-retries"`
	RetryDelay             Duration     `json:"retry-delay"`
	TransientRetryInterval Duration     `json:"transient-retry-interval"`
	Types                  TypesConfig  `json:"types"`
	Proxy                  ProxyConfig  `json:"proxy"`
	Apt                    AptConfig    `json:"apt"`
	Images                 ImagesConfig `json:"images"`
	// AuthorizedKeys are added to the SSH keys of every machine.
	AuthorizedKeys []string        `json:"authorized-keys"`
	API            APIConfig       `json:"api"`
	Guard          GuardConfig     `json:"guard"`
	CloudInit      CloudInitConfig `json:"cloud-init"`
}

// The values of Config.Removals.
const (
	RemovalsHold = "hold"
	RemovalsObey = "obey"
)

// CloudInitConfig configures how cloud-init and hostler work together on this
// host.
type CloudInitConfig struct {
	// Wait is the time for which each boot's cloud-init waits for all declared
	// objects. Zero means that it does not wait.
	Wait Duration `json:"wait"`
}

// GuardConfig configures the guard for changes of the host's own network.
type GuardConfig struct {
	// Probes are addresses that must stay reachable, besides the default gateways
	// and the address from which the user requested the change.
	Probes []string `json:"probes"`
}

// ProxyConfig is the proxy of the host and its guests. HTTP and HTTPS are URLs.
// No is a comma-separated list of hosts to reach without the proxy.
type ProxyConfig struct {
	HTTP  string `json:"http"`
	HTTPS string `json:"https"`
	No    string `json:"no"`
}

// WithoutProxyUsers returns the configuration that machines and provisioners
// get. Its proxy addresses have no user name and password, because only the
// host is allowed to know them. E.g. http://user:secret@proxy:3128 becomes
// http://proxy:3128.
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

// AptConfig holds the URLs for Debian packages.
type AptConfig struct {
	Mirror       string `json:"mirror"`
	UbuntuMirror string `json:"ubuntu-mirror"`
	Proxy        string `json:"proxy"`
}

// ImagesConfig configures the sources of images.
type ImagesConfig struct {
	// Sources are tried in order: local, build, simplestreams:NAME.
	Sources []string `json:"sources"`
	// Servers maps each simplestreams NAME to its https URL.
	Servers map[string]string `json:"servers,omitempty"`
	// Refresh is "never" or a duration. If an image that is referenced by name is
	// older than Refresh, the agent asks its source again.
	Refresh string `json:"refresh"`
}

// RefreshEvery returns the duration in Refresh, or 0 for never.
func (i ImagesConfig) RefreshEvery() time.Duration {
	d, err := ParseDuration(i.Refresh)
	if err != nil {
		return 0
	}
	return d.Std()
}

// APIConfig configures the API's listeners besides its unix socket, and the
// rights of readers.
type APIConfig struct {
	// Listen is reserved for ADDRESS:PORT. This agent accepts only "", because it
	// listens on its unix socket alone.
	Listen string `json:"listen"`
	// ReadersSeeConsoles lets members of the group hostler read the machines'
	// consoles, which include passwords that a first boot prints.
	ReadersSeeConsoles bool `json:"readers-see-consoles"`
}

// DefaultConfig returns the configuration of a host without a configuration
// file.
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
		Types:                  defaultTypes(),
		Images:                 ImagesConfig{Sources: []string{"local", "build"}, Refresh: "never"},
	}
}
