package lxd

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/canonical/lxd/shared/api"
	"golang.org/x/sys/unix"

	"hostler/initialisers"
	"hostler/internal/fault"
	"hostler/internal/lxd/rest"
)

// lookTimeout covers all requests of one observation, and configureTimeout all
// requests of one configuration.
const (
	lookTimeout      = 15 * time.Second
	configureTimeout = 5 * time.Minute
)

// connect returns a client for LXD's socket. Its requests end with ctx.
func (i *Initialiser) connect(ctx context.Context, socket string) *rest.Client {
	return rest.Open(ctx, i.opts.Dialect.Name, socket, lookTimeout, 0)
}

// observe reads the parts of LXD's configuration on which plan() depends. It
// changes nothing.
func (i *Initialiser) observe(ctx context.Context, socket string) (seen, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	have, err := look(i.connect(ctx, socket))
	if err != nil {
		return seen{}, fault.New(fault.Transient, "cannot read %s's configuration: %w", i.opts.Dialect.Name, err)
	}
	return have, nil
}

func look(server *rest.Client) (seen, error) {
	var info api.Server
	if _, err := server.Get("/1.0", &info); err != nil {
		return seen{}, err
	}
	have := seen{networks: map[string]network{}, devices: map[string]deviceConfig{}, cluster: info.Environment.ServerClustered}
	for _, d := range info.Environment.StorageSupportedDrivers {
		have.drivers = append(have.drivers, d.Name)
	}
	var pools []api.StoragePool
	if _, err := server.Get("/1.0/storage-pools?recursion=1", &pools); err != nil {
		return seen{}, err
	}
	for _, p := range pools {
		have.pools = append(have.pools, p.Name)
		if p.Driver == "dir" {
			have.limitless = append(have.limitless, p.Name)
		}
	}
	var networks []api.Network
	if _, err := server.Get("/1.0/networks?recursion=1", &networks); err != nil {
		return seen{}, err
	}
	for _, n := range networks {
		mtu, _ := strconv.Atoi(n.Config["bridge.mtu"])
		have.networks[n.Name] = network{
			managed: n.Managed, kind: n.Type, address: n.Config["ipv4.address"], mtu: mtu, ours: n.Description == bridgeDescription,
		}
	}
	for _, name := range []string{"default", Profile} { // a device of the later profile wins, as in LXD
		var profile api.Profile
		_, err := server.Get(profilePath(name), &profile)
		if name == Profile && api.StatusErrorCheck(err, http.StatusNotFound) {
			break
		}
		if err != nil {
			return seen{}, err
		}
		if name == Profile && profile.Config[keyProfile] == "" {
			have.taken = true
			break
		}
		maps.Copy(have.devices, profile.Devices)
	}
	return have, nil
}

// configure creates the pool, bridge and profile that LXD lacks, and sets the
// MTU of hostler's bridge.
func (i *Initialiser) configure(ctx context.Context, socket string, progress func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	server := i.connect(ctx, socket)
	have, err := look(server)
	if err != nil {
		return fault.New(fault.Transient, "cannot read %s's configuration: %w", i.opts.Dialect.Name, err)
	}
	todo, err := i.plan(have)
	if err != nil {
		return err
	}
	if todo.pool != "" {
		if err := i.createPool(server, filepath.Dir(socket), have.drivers, todo.pool, progress); err != nil {
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
		progress("creating " + i.opts.Dialect.Name + "'s profile " + Profile)
		if err := completeProfile(server, todo.devices); err != nil {
			return fault.New(fault.Transient, "cannot create %s's profile %s: %w", i.opts.Dialect.Name, Profile, err)
		}
	}
	return nil
}

// plan returns the planned changes. It reads the host's network only if a
// bridge must be made.
func (i *Initialiser) plan(have seen) (steps, error) {
	todo, err := plan(have, i.wanted(), initialisers.HostNetwork{})
	if err != nil || todo.network == "" {
		return todo, err
	}
	host, err := initialisers.ReadHostNetwork(i.opts.Paths)
	if err != nil {
		return steps{}, err
	}
	return plan(have, i.wanted(), host)
}

// createPool makes a btrfs pool in a sparse file, see
// docs/decisions/0002-lxd-storage-pool.md. If that fails, it makes a pool in a
// plain folder instead, and reports the reason as progress and in the log. dir
// is the daemon's folder.
func (i *Initialiser) createPool(server *rest.Client, dir string, drivers []string, name string, progress func(string)) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("cannot create storage pool %s: %s: %w", name, dir, err)
	}
	size := initialisers.PoolSize(fs.Bavail * uint64(fs.Bsize))
	reason := i.opts.Dialect.Name + " finds no btrfs tools on this host"
	if slices.Contains(drivers, "btrfs") {
		progress(fmt.Sprintf("creating storage pool %s (btrfs, up to %d GiB)", name, size/initialisers.GiB))
		err := server.Send(http.MethodPost, "/1.0/storage-pools", api.StoragePoolsPost{
			Name: name, Driver: "btrfs", StoragePoolPut: api.StoragePoolPut{
				Description: poolDescription, Config: map[string]string{"size": strconv.FormatUint(size/initialisers.GiB, 10) + "GiB"},
			},
		}, "")
		if err == nil || exists(server, "/1.0/storage-pools/", name) {
			return nil
		}
		reason = err.Error()
	}
	i.log.Warn("storage pool without limits for root disks", "pool", name, "reason", reason)
	progress(fmt.Sprintf("creating storage pool %s as a plain folder, which does not enforce root-disk sizes: %s", name, reason))
	folder := api.StoragePoolsPost{Name: name, Driver: "dir", StoragePoolPut: api.StoragePoolPut{Description: poolDescription}}
	if err := server.Send(http.MethodPost, "/1.0/storage-pools", folder, ""); err != nil && !exists(server, "/1.0/storage-pools/", name) {
		return fault.New(fault.Transient, "cannot create storage pool %s: %w", name, err)
	}
	return nil
}

// The descriptions that mark a bridge and a pool as made by this package. The
// removal script of hostler's package (debian/hostler.postrm) looks for them.
const (
	bridgeDescription = "NATed bridge made by hostler"
	poolDescription   = "Storage pool made by hostler"
)

func (i *Initialiser) createBridge(server *rest.Client, name, address string, progress func(string)) error {
	progress(fmt.Sprintf("creating bridge %s (%s, NAT, DHCP)", name, address))
	config := map[string]string{"ipv4.address": address, "ipv4.nat": "true", "ipv6.address": "none"}
	if i.opts.MTU != 0 {
		config["bridge.mtu"] = strconv.Itoa(i.opts.MTU)
	}
	err := server.Send(http.MethodPost, "/1.0/networks", api.NetworksPost{Name: name, Type: "bridge", NetworkPut: api.NetworkPut{
		Config: config, Description: bridgeDescription,
	}}, "")
	if err != nil && !exists(server, "/1.0/networks/", name) {
		return fault.New(fault.Transient, "cannot create bridge %s: %w", name, err)
	}
	return nil
}

// setMTU changes the MTU of a bridge that hostler made. LXD applies the MTU at
// once. Guests get it at their next start.
func setMTU(server *rest.Client, name string, mtu int, progress func(string)) error {
	progress(fmt.Sprintf("setting the MTU of bridge %s to %d", name, mtu))
	var n api.Network
	path := "/1.0/networks/" + url.PathEscape(name)
	etag, err := server.Get(path, &n)
	if err == nil {
		put := n.Writable()
		if put.Config == nil {
			put.Config = map[string]string{}
		}
		put.Config["bridge.mtu"] = strconv.Itoa(mtu)
		err = server.Send(http.MethodPut, path, put, etag)
	}
	if err != nil {
		return fault.New(fault.Transient, "cannot set the MTU of bridge %s: %w", name, err)
	}
	return nil
}

// Profile is the name of the profile that hostler's machines get after the
// default profile. hostler creates it if the default profile lacks a root disk
// or a NIC, so that it provides what is lacking.
const Profile = "hostler"

// keyProfile marks Profile as made by this package.
const keyProfile = "user.hostler.profile"

// completeProfile creates Profile, or adds the given devices to it.
func completeProfile(server *rest.Client, devices map[string]deviceConfig) error {
	var profile api.Profile
	etag, err := server.Get(profilePath(Profile), &profile)
	switch {
	case api.StatusErrorCheck(err, http.StatusNotFound):
		err = server.Send(http.MethodPost, "/1.0/profiles", api.ProfilesPost{Name: Profile, ProfilePut: api.ProfilePut{
			Description: "Root disk and NIC of the machines that hostler makes", Devices: devices,
			Config: map[string]string{keyProfile: "true"},
		}}, "")
	case err == nil:
		put := profile.Writable()
		if put.Devices == nil {
			put.Devices = map[string]map[string]string{}
		}
		maps.Copy(put.Devices, devices)
		err = server.Send(http.MethodPut, profilePath(Profile), put, etag)
	}
	return err
}

func profilePath(name string) string { return "/1.0/profiles/" + url.PathEscape(name) }

// exists reports, after a failed create, whether the object exists nonetheless,
// because another process made it at the same moment or the answer was lost.
func exists(server *rest.Client, path, name string) bool {
	var found struct{}
	_, err := server.Get(path+url.PathEscape(name), &found)
	return err == nil
}
