package lxd

import (
	"context"
	"fmt"
	"maps"
	"net/http"
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
	have := seen{networks: map[string]network{}, devices: map[string]deviceConfig{}, cluster: info.Environment.ServerClustered}
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
	for _, name := range []string{"default", Profile} { // in LXD, too, the later counts
		profile, _, err := server.GetProfile(name)
		if name == Profile && api.StatusErrorCheck(err, http.StatusNotFound) {
			break
		}
		if err != nil {
			return seen{}, err
		}
		maps.Copy(have.devices, profile.Devices)
		have.taken = name == Profile && profile.Config[keyProfile] == ""
	}
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
	todo, err := i.plan(have)
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
		progress("creating LXD's profile " + Profile)
		return completeProfile(server, todo.devices)
	}
	return nil
}

// plan reads the host's network where a bridge has to be made, and only there.
func (i *Initialiser) plan(have seen) (steps, error) {
	todo, err := plan(have, i.wanted(), hostNetwork{})
	if err != nil || todo.network == "" {
		return todo, err
	}
	host, err := readHostNetwork(i.opts.Paths)
	if err != nil {
		return steps{}, err
	}
	return plan(have, i.wanted(), host)
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
			Name: name, Driver: "btrfs", StoragePoolPut: api.StoragePoolPut{
				Description: poolDescription, Config: map[string]string{"size": strconv.FormatUint(size/gib, 10) + "GiB"},
			},
		})
		if err == nil || exists(server.GetStoragePoolNames, name) {
			return nil
		}
		reason = err.Error()
	}
	i.log.Warn("storage pool without limits for root disks", "pool", name, "reason", reason)
	progress(fmt.Sprintf("creating storage pool %s as a plain folder, where root-disk sizes do not hold: %s", name, reason))
	folder := api.StoragePoolsPost{Name: name, Driver: "dir", StoragePoolPut: api.StoragePoolPut{Description: poolDescription}}
	if err := server.CreateStoragePool(folder); err != nil && !exists(server.GetStoragePoolNames, name) {
		return fault.New(fault.Transient, "cannot create storage pool %s: %w", name, err)
	}
	return nil
}

// These mark a bridge and a pool as made by this package. The package's removal
// (debian/hostler.postrm) knows them by it.
const (
	bridgeDescription = "NATed bridge made by hostler"
	poolDescription   = "Storage pool made by hostler"
)

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

// Profile is the name of the profile that machines made by hostler have behind
// the default one. It exists where the default profile gives no root disk or no
// NIC, and gives these.
const Profile = "hostler"

// keyProfile marks Profile as made by this package.
const keyProfile = "user.hostler.profile"

// completeProfile creates Profile, or adds what it lacks.
func completeProfile(server client.InstanceServer, devices map[string]deviceConfig) error {
	profile, etag, err := server.GetProfile(Profile)
	switch {
	case api.StatusErrorCheck(err, http.StatusNotFound):
		err = server.CreateProfile(api.ProfilesPost{Name: Profile, ProfilePut: api.ProfilePut{
			Description: "Root disk and NIC of the machines that hostler makes", Devices: devices,
			Config: map[string]string{keyProfile: "true"},
		}})
	case err == nil:
		put := profile.Writable()
		if put.Devices == nil {
			put.Devices = map[string]map[string]string{}
		}
		maps.Copy(put.Devices, devices)
		err = server.UpdateProfile(Profile, put, etag)
	}
	if err != nil {
		return fault.New(fault.Transient, "cannot create LXD's profile %s: %w", Profile, err)
	}
	return nil
}

// exists looks, after a failed create, whether the object is there: made by a
// person at the same moment, or by a request whose answer was lost.
func exists(names func() ([]string, error), name string) bool {
	all, err := names()
	return err == nil && slices.Contains(all, name)
}
