package spec

import "maps"

// configSchema describes every key of the host's configuration. Each entry is
// named by the Go type and the key. A test compares the entries with the types.
var configSchema = merged(typesSchema, map[string]fieldSchema{
	"Config.namespace":                {description: "Part of every stamp: agents with different namespaces never touch each other's objects. A change takes effect at the agent's next start.", pattern: namePattern},
	"Config.removals":                 {description: "What happens to an object with data that no document declares any more: hold keeps it until its removal is allowed, obey removes it, for hosts whose files are written by a program.", words: []string{RemovalsHold, RemovalsObey}},
	"Config.harvest":                  {description: "What happens to instances that nothing declares any more: destroyed deletes the instance of a machine whose declaration went away, unknown deletes instances with this agent's stamp and no record, all does both, none does neither.", words: harvestModes()},
	"Config.max-machines":             {description: "The largest number of machines; documents that declare more are refused.", least: 1, most: maxMachines},
	"Config.concurrency":              {description: "Instance operations at once, per container type.", least: 1, most: maxConcurrency},
	"Config.start-retries":            {description: "How often a failed operation is retried after retry-delay; after that, every transient-retry-interval.", most: maxRetries},
	"Config.retry-delay":              {description: "The time between two of these retries."},
	"Config.transient-retry-interval": {description: "The time between two tries of an operation that keeps failing."},
	"Config.types":                    {description: "The container types. Changes take effect when the agent is restarted."},
	"Config.proxy":                    {description: "The proxy that the host and its guests use. A user name and a password in an address are for the host alone: machines are given the address without them."},
	"Config.apt":                      {description: "Where the packages come from that the agent installs on the host and in built images."},
	"Config.images":                   {description: "Where images come from."},
	"Config.authorized-keys":          {description: "SSH public keys for every machine, besides its own ssh-keys."},
	"Config.api":                      {description: "Where the API listens besides its unix socket, and whether readers see consoles."},
	"Config.guard":                    {description: "How changes of the host's own network are guarded."},
	"Config.cloud-init":               {description: "How cloud-init and hostler work together on this host."},

	"CloudInitConfig.wait": {description: "How long cloud-init of this host waits at each boot until all declared objects are ready; if they are not, cloud-init has an error. 0s: it does not wait."},

	"GuardConfig.probes": {description: "Addresses that must stay reachable when NICs of the host change, besides the default gateways and the client that asked for the change."},

	"ProxyConfig.http":  {description: "URL of the proxy for HTTP."},
	"ProxyConfig.https": {description: "URL of the proxy for HTTPS."},
	"ProxyConfig.no":    {description: "Hosts that are reached without it, with commas."},

	"AptConfig.mirror":        {description: "URL of the Debian mirror; without it, the mirror that the host itself uses."},
	"AptConfig.ubuntu-mirror": {description: "URL of the Ubuntu mirror for building images of Ubuntu; without it, the mirror that the host itself uses."},
	"AptConfig.proxy":         {description: "URL of a proxy for packages alone; as with proxy, machines are not given its user name and password."},

	"ImagesConfig.sources": {description: "The sources of images by name, asked in order: local (the cache and the hypervisors), build (built on this host), simplestreams:NAME."},
	"ImagesConfig.servers": {description: "The https URL of each simplestreams NAME."},
	"ImagesConfig.refresh": {description: "never, or a duration: how old an image by name may get before its source is asked again."},

	"APIConfig.readers-see-consoles": {description: "Members of the group hostler may read what machines write to their consoles (hostler logs), and errors and events hold a console's last lines. A first boot may print passwords there: without this key consoles are for hostler-admin alone."},

	"APIConfig.listen": {description: "Empty: the unix socket only; this agent accepts nothing else."},
})

func merged(a, b map[string]fieldSchema) map[string]fieldSchema {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}
