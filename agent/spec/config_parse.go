package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"hostler/internal/fault"
	"hostler/internal/plainword"
)

// Warning is a harmless fault in the host configuration that the user should
// know of. The only such fault is an unknown key.
type Warning Error

// Summary returns the warning in one line, without the excerpt.
func (w Warning) Summary() string { return (*Error)(&w).summary() }

// harvestModes returns the accepted values of the key harvest.
func harvestModes() []string { return []string{"none", "unknown", "destroyed", "all"} }

const (
	maxConcurrency = 64
	maxMachines    = 100_000
	maxRetries     = 1000
	maxRetryDelay  = Duration(24 * time.Hour)
	maxKeepRemoved = Duration(365 * 24 * time.Hour)
	minRetryDelay  = Duration(10 * time.Millisecond)
	minInterval    = Duration(time.Second)
)

var poolForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// ParseConfig reads and checks the host configuration. A missing key has its
// value of DefaultConfig(). file names the file in errors and warnings. An
// unknown key causes a warning; the warnings are returned even with an error.
// The error has the kind fault.Invalid and holds Errors, like that of Parse().
func ParseConfig(file string, content []byte) (Config, []Warning, error) {
	src, root, errs := read(file, content, "shorten its comments and lists")
	if root == nil {
		return Config{}, nil, fault.Wrap(fault.Invalid, errs.sorted(file))
	}
	d := newDecoder(src, errs)
	d.lenient = true
	config := DefaultConfig()
	d.decode(root, reflect.ValueOf(&config).Elem(), "")
	(&configChecker{decoder: d}).check(&config)
	if len(d.errs) > 0 {
		return Config{}, d.warnings, fault.Wrap(fault.Invalid, d.errs.sorted(file))
	}
	return config, d.warnings, nil
}

// configChecker checks a decoded host configuration.
type configChecker struct{ *decoder }

func (c *configChecker) check(config *Config) {
	c.matches("namespace", config.Namespace, nameForm, "a namespace: "+nameHelp)
	c.word("harvest", config.Harvest, harvestModes()...)
	c.word("removals", config.Removals, RemovalsHold, RemovalsObey)
	c.between("max-machines", config.MaxMachines, 1, maxMachines)
	c.between("concurrency", config.Concurrency, 1, maxConcurrency)
	c.between("start-retries", config.StartRetries, 0, maxRetries)
	c.duration("retry-delay", config.RetryDelay, minRetryDelay)
	c.duration("transient-retry-interval", config.TransientRetryInterval, minInterval)
	c.types(config.Types)
	c.url("proxy.http", config.Proxy.HTTP, "http", "https")
	c.url("proxy.https", config.Proxy.HTTPS, "http", "https")
	if c.ok("proxy.no") && !plainword.Is(config.Proxy.No) {
		c.bad("proxy.no", "separate the hosts by commas only, like \"localhost,10.0.0.0/8,.example.com\"")
	}
	c.url("apt.mirror", config.Apt.Mirror, "http", "https")
	c.url("apt.ubuntu-mirror", config.Apt.UbuntuMirror, "http", "https")
	c.url("apt.proxy", config.Apt.Proxy, "http", "https")
	c.plain("proxy.http", config.Proxy.HTTP)
	c.plain("proxy.https", config.Proxy.HTTPS)
	c.plain("apt.mirror", config.Apt.Mirror)
	c.plain("apt.ubuntu-mirror", config.Apt.UbuntuMirror)
	c.plain("apt.proxy", config.Apt.Proxy)
	c.images(config.Images)
	c.sshKeys("authorized-keys", config.AuthorizedKeys)
	c.listen("api.listen", config.API.Listen)
	c.duration("cloud-init.wait", config.CloudInit.Wait, 0)
	for i, probe := range config.Guard.Probes {
		at := fmt.Sprintf("guard.probes[%d]", i)
		if a, err := netip.ParseAddr(probe); c.ok(at) && (err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast()) {
			c.bad(at, "%s is not the address of another host; write an address like 192.0.2.1", quote(probe))
		}
	}
}

func (c *configChecker) matches(path, s string, form *regexp.Regexp, what string) {
	if c.ok(path) && !form.MatchString(s) {
		c.bad(path, "%s cannot be %s", quote(s), what)
	}
}

func (c *configChecker) word(path, s string, words ...string) {
	if c.ok(path) && !slices.Contains(words, s) {
		c.bad(path, "%s is not one of: %s", quote(s), strings.Join(words, ", "))
	}
}

func (c *configChecker) between(path string, n, least, most int) {
	if c.ok(path) && (n < least || n > most) {
		c.bad(path, "%d is out of bounds; use %d to %d", n, least, most)
	}
}

func (c *configChecker) duration(path string, d, least Duration) {
	c.span(path, d, least, maxRetryDelay)
}

func (c *configChecker) span(path string, d, least, most Duration) {
	switch {
	case !c.ok(path):
	case d < least:
		c.bad(path, "%s is too short; use at least %s", d, least)
	case d > most:
		c.bad(path, "%s is too long; use at most %s", d, most)
	}
}

// url checks an optional URL.
func (c *configChecker) url(path, s string, schemes ...string) {
	if s == "" || !c.ok(path) {
		return
	}
	u, err := url.Parse(s)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" || strings.ContainsAny(s, " \"'") {
		// The message does not quote the URL, because it may hold a password.
		c.bad(path, "this is not an address that begins with %s://; write an address like %s://server:8000", strings.Join(schemes, ":// or "), schemes[0])
	}
}

// plain refuses text that a guest's configuration cannot hold.
func (c *configChecker) plain(path, s string) {
	if c.ok(path) && !plainword.Is(s) {
		c.bad(path, "contains %s, which cannot be passed to machines; write it percent-encoded, like %%24 for $", plainword.Refused)
	}
}

func (c *configChecker) images(images ImagesConfig) {
	const path = "images"
	names := slices.Sorted(maps.Keys(images.Servers))
	for _, name := range names {
		at := path + ".servers." + name
		if !nameForm.MatchString(name) {
			c.badKey(at, "%s cannot be the name of a server: a name is %s", quote(name), nameHelp)
		}
		c.url(at, images.Servers[name], "https")
	}
	if len(images.Sources) == 0 && c.ok(path+".sources") {
		c.bad(path+".sources", "names no source; write at least one, like [local, build]")
	}
	seen := map[string]bool{}
	for i, source := range images.Sources {
		at := fmt.Sprintf("%s.sources[%d]", path, i)
		name, streams := strings.CutPrefix(source, "simplestreams:")
		switch {
		case !c.ok(at):
		case seen[source]:
			c.bad(at, "%s is in the list already; remove it", quote(source))
		case source == "local" || source == "build":
		case !streams || !nameForm.MatchString(name):
			c.bad(at, "%s is not a source; use local, build or simplestreams:NAME", quote(source))
		case !slices.Contains(names, name):
			c.bad(at, "the server %s is not configured; add its https address under images.servers", quote(name))
		}
		seen[source] = true
	}
	if c.ok(path+".refresh") && images.Refresh != "never" {
		if d, err := ParseDuration(images.Refresh); err != nil {
			c.bad(path+".refresh", "%v, or never", err)
		} else if d < minInterval {
			c.bad(path+".refresh", "%s is too short; use at least %s, or never", quote(images.Refresh), minInterval)
		}
	}
}

// listen refuses every address, because this agent cannot listen on addresses
// yet. If one were accepted, users would expect the API to be reachable there.
func (c *configChecker) listen(path, s string) {
	if s != "" && c.ok(path) {
		c.bad(path, "this agent listens on its unix socket only and cannot listen on %s; leave it empty and reach the socket through SSH", quote(s))
	}
}
