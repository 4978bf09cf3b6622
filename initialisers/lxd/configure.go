package lxd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	client "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"golang.org/x/sys/unix"

	"hostler/internal/fault"
)

// The library's calls have no bounds of their own but an hour.
const (
	lookTimeout      = 15 * time.Second
	configureTimeout = 5 * time.Minute
)

// connect returns a client for one operation: the library's clients must not
// be shared or derived from, as they corrupt each other's contexts. The
// returned function drops its connections, which Disconnect does not.
func connect(ctx context.Context, socket string) (client.InstanceServer, func(), error) {
	server, err := client.ConnectLXDUnixWithContext(ctx, socket, &client.ConnectionArgs{UserAgent: "hostler"})
	if err != nil {
		return nil, nil, fault.New(fault.Transient, "cannot reach LXD: %w", err)
	}
	return server, func() {
		if c, err := server.GetHTTPClient(); err == nil {
			c.CloseIdleConnections()
		}
	}, nil
}

// observe reads what bears on the first configuration; it changes nothing.
func observe(ctx context.Context, socket string) (seen, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	server, done, err := connect(ctx, socket)
	if err != nil {
		return seen{}, err
	}
	defer done()
	have, err := look(server)
	if err != nil {
		return seen{}, fault.New(fault.Transient, "cannot read LXD's configuration: %w", err)
	}
	return have, nil
}

func look(server client.InstanceServer) (seen, error) {
	info, _, err := server.GetServer()
	if err != nil {
		return seen{}, err
	}
	have := seen{networks: map[string]network{}, config: map[string]string{}, cluster: info.Environment.ServerClustered}
	for key, value := range info.Config {
		have.config[key] = fmt.Sprint(value)
	}
	for _, d := range info.Environment.StorageSupportedDrivers {
		have.drivers = append(have.drivers, d.Name)
	}
	pools, err := server.GetStoragePools()
	if err != nil {
		return seen{}, err
	}
	for _, p := range pools {
		have.pools = append(have.pools, p.Name)
		if p.Driver == "dir" {
			have.limitless = append(have.limitless, p.Name)
		}
	}
	networks, err := server.GetNetworks()
	if err != nil {
		return seen{}, err
	}
	for _, n := range networks {
		mtu, _ := strconv.Atoi(n.Config["bridge.mtu"])
		have.networks[n.Name] = network{
			managed: n.Managed, kind: n.Type, address: n.Config["ipv4.address"], mtu: mtu, ours: n.Description == bridgeDescription,
		}
	}
	profile, _, err := server.GetProfile("default")
	if err != nil {
		return seen{}, err
	}
	have.devices = profile.Devices
	return have, nil
}

// configure gives LXD what it lacks.
func (i *Initialiser) configure(ctx context.Context, socket string, progress func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	server, done, err := connect(ctx, socket)
	if err != nil {
		return err
	}
	defer done()
	have, err := look(server)
	if err != nil {
		return fault.New(fault.Transient, "cannot read LXD's configuration: %w", err)
	}
	host, err := readHostNetwork(i.opts.Paths)
	if err != nil {
		return err
	}
	todo, err := plan(have, i.wanted(), host)
	if err != nil {
		return err
	}
	if todo.pool != "" {
		if err := i.createPool(server, have.drivers, todo.pool, progress); err != nil {
			return err
		}
	}
	if todo.network != "" {
		if err := i.createBridge(server, todo.network, todo.subnet, progress); err != nil {
			return err
		}
	}
	if todo.mtuOf != "" {
		if err := setMTU(server, todo.mtuOf, i.opts.MTU, progress); err != nil {
			return err
		}
	}
	if len(todo.devices) > 0 {
		progress("completing LXD's default profile")
		if err := addDevices(server, todo.devices); err != nil {
			return err
		}
	}
	if len(todo.config) > 0 {
		progress("setting LXD's proxy")
		return setConfig(server, todo.config)
	}
	return nil
}

// createPool makes a btrfs pool in a sparse file, see
// docs/decisions/0002-lxd-storage-pool.md; where that does not work, a plain
// folder, and tells why.
func (i *Initialiser) createPool(server client.InstanceServer, drivers []string, name string, progress func(string)) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(i.dir(), &fs); err != nil {
		return fmt.Errorf("cannot create storage pool %s: %s: %w", name, i.dir(), err)
	}
	size := poolSize(fs.Bavail * uint64(fs.Bsize))
	reason := "LXD finds no btrfs tools on this host"
	if slices.Contains(drivers, "btrfs") {
		progress(fmt.Sprintf("creating storage pool %s (btrfs, up to %d GiB)", name, size/gib))
		err := server.CreateStoragePool(api.StoragePoolsPost{
			Name: name, Driver: "btrfs",
			StoragePoolPut: api.StoragePoolPut{Config: map[string]string{"size": strconv.FormatUint(size/gib, 10) + "GiB"}},
		})
		if err == nil || exists(server.GetStoragePoolNames, name) {
			return nil
		}
		reason = err.Error()
	}
	i.log.Warn("storage pool without limits for root disks", "pool", name, "reason", reason)
	progress(fmt.Sprintf("creating storage pool %s as a plain folder, where root-disk sizes do not hold: %s", name, reason))
	if err := server.CreateStoragePool(api.StoragePoolsPost{Name: name, Driver: "dir"}); err != nil && !exists(server.GetStoragePoolNames, name) {
		return fault.New(fault.Transient, "cannot create storage pool %s: %w", name, err)
	}
	return nil
}

// bridgeDescription marks a bridge as made by this package.
const bridgeDescription = "NATed bridge made by hostler"

func (i *Initialiser) createBridge(server client.InstanceServer, name, address string, progress func(string)) error {
	progress(fmt.Sprintf("creating bridge %s (%s, NAT, DHCP)", name, address))
	config := map[string]string{"ipv4.address": address, "ipv4.nat": "true", "ipv6.address": "none"}
	if i.opts.MTU != 0 {
		config["bridge.mtu"] = strconv.Itoa(i.opts.MTU)
	}
	err := server.CreateNetwork(api.NetworksPost{Name: name, Type: "bridge", NetworkPut: api.NetworkPut{
		Config: config, Description: bridgeDescription,
	}})
	if err != nil && !exists(server.GetNetworkNames, name) {
		return fault.New(fault.Transient, "cannot create bridge %s: %w", name, err)
	}
	return nil
}

// setMTU changes the MTU of a bridge of ours. LXD applies it at once; guests
// have it from their next start on.
func setMTU(server client.InstanceServer, name string, mtu int, progress func(string)) error {
	progress(fmt.Sprintf("setting the MTU of bridge %s to %d", name, mtu))
	n, etag, err := server.GetNetwork(name)
	if err == nil {
		put := n.Writable()
		if put.Config == nil {
			put.Config = map[string]string{}
		}
		put.Config["bridge.mtu"] = strconv.Itoa(mtu)
		err = server.UpdateNetwork(name, put, etag)
	}
	if err != nil {
		return fault.New(fault.Transient, "cannot set the MTU of bridge %s: %w", name, err)
	}
	return nil
}

// addDevices adds to the default profile what it still lacks; devices that
// somebody added meanwhile stay.
func addDevices(server client.InstanceServer, devices map[string]deviceConfig) error {
	profile, etag, err := server.GetProfile("default")
	if err == nil {
		put := profile.Writable()
		if put.Devices == nil {
			put.Devices = map[string]map[string]string{}
		}
		for name, device := range devices {
			if _, taken := put.Devices[name]; !taken {
				put.Devices[name] = device
			}
		}
		err = server.UpdateProfile("default", put, etag)
	}
	if err != nil {
		return fault.New(fault.Transient, "cannot complete LXD's default profile: %w", err)
	}
	return nil
}

func setConfig(server client.InstanceServer, config map[string]string) error {
	info, etag, err := server.GetServer()
	if err == nil {
		put := info.Writable()
		if put.Config == nil {
			put.Config = map[string]any{}
		}
		for key, value := range config {
			put.Config[key] = value
		}
		err = server.UpdateServer(put, etag)
	}
	if err != nil {
		return fault.New(fault.Transient, "cannot set LXD's proxy: %w", err)
	}
	return nil
}

// exists looks, after a failed create, whether the object is there: made by a
// person at the same moment, or by a request whose answer was lost.
func exists(names func() ([]string, error), name string) bool {
	all, err := names()
	return err == nil && slices.Contains(all, name)
}
