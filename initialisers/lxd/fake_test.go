package lxd_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/canonical/lxd/shared/api"

	"hostler/internal/paths"
)

// fakeLXD implements the part of LXD's API that the initialiser uses, and keeps
// the state that it was given.
type fakeLXD struct {
	t  *testing.T
	mu sync.Mutex

	listener  net.Listener
	drivers   []string
	refuse    map[string]string // driver -> why a pool of it cannot be made
	pools     map[string]api.StoragePool
	networks  map[string]api.Network
	profile   api.ProfilePut  // the default profile
	ours      *api.ProfilePut // nil: there is none
	config    map[string]any
	mutations []string
	starting  int // how many requests are still answered "in progress"
}

func newFakeLXD(t *testing.T) *fakeLXD {
	return &fakeLXD{
		t: t, drivers: []string{"dir", "btrfs"}, refuse: map[string]string{},
		pools: map[string]api.StoragePool{}, networks: map[string]api.Network{}, config: map[string]any{},
	}
}

// listen opens the socket by a relative path in dir, since the full path is too
// long for a socket.
func (f *fakeLXD) listen(dir string) {
	f.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	f.t.Chdir(dir)
	var err error
	if f.listener, err = net.Listen("unix", "unix.socket"); err != nil {
		f.t.Fatal(err)
	}
	server := &http.Server{Handler: f}
	go func() { _ = server.Serve(f.listener) }()
	f.t.Cleanup(func() { _ = server.Close() })
}

func (f *fakeLXD) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.starting > 0 {
		f.starting--
		f.fail(w, http.StatusServiceUnavailable, "LXD daemon setup in progress")
		return
	}
	if r.Method != http.MethodGet {
		f.mutations = append(f.mutations, r.Method+" "+r.URL.Path)
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /1.0":
		server := api.Server{ServerUntrusted: api.ServerUntrusted{
			APIExtensions: []string{"storage", "network"}, Auth: "trusted", APIVersion: "1.0",
		}}
		server.Config = f.config
		for _, d := range f.drivers {
			server.Environment.StorageSupportedDrivers = append(server.Environment.StorageSupportedDrivers, api.ServerStorageDriverInfo{Name: d})
		}
		f.answer(w, server)
	case "GET /1.0/storage-pools":
		all := []api.StoragePool{}
		for _, p := range f.pools {
			all = append(all, p)
		}
		f.answer(w, listing(r, "/1.0/storage-pools/", all, func(p api.StoragePool) string { return p.Name }))
	case "GET /1.0/storage-pools/default":
		if p, there := f.pools["default"]; there {
			f.answer(w, p)
			return
		}
		f.fail(w, http.StatusNotFound, "Storage pool not found")
	case "POST /1.0/storage-pools":
		var post api.StoragePoolsPost
		f.read(r, &post)
		if why := f.refuse[post.Driver]; why != "" {
			f.fail(w, http.StatusInternalServerError, why)
			return
		}
		f.pools[post.Name] = api.StoragePool{Name: post.Name, Driver: post.Driver, Config: post.Config}
		f.answer(w, nil)
	case "GET /1.0/networks":
		all := []api.Network{}
		for _, n := range f.networks {
			all = append(all, n)
		}
		f.answer(w, listing(r, "/1.0/networks/", all, func(n api.Network) string { return n.Name }))
	case "POST /1.0/networks":
		var post api.NetworksPost
		f.read(r, &post)
		f.networks[post.Name] = api.Network{Name: post.Name, Type: post.Type, Managed: true, Config: post.Config, Description: post.Description}
		f.answer(w, nil)
	case "GET /1.0/networks/lxdbr0":
		f.answer(w, f.networks["lxdbr0"])
	case "PUT /1.0/networks/lxdbr0":
		n := f.networks["lxdbr0"]
		var put api.NetworkPut
		f.read(r, &put)
		n.Config, n.Description = put.Config, put.Description
		f.networks["lxdbr0"] = n
		f.answer(w, nil)
	case "GET /1.0/profiles/default":
		f.answer(w, api.Profile{Name: "default", Config: f.profile.Config, Devices: f.profile.Devices})
	case "GET /1.0/profiles/hostler":
		if f.ours == nil {
			f.fail(w, http.StatusNotFound, "Profile not found")
			return
		}
		f.answer(w, api.Profile{Name: "hostler", Config: f.ours.Config, Devices: f.ours.Devices})
	case "POST /1.0/profiles":
		var post api.ProfilesPost
		f.read(r, &post)
		if post.Name != "hostler" || f.ours != nil {
			f.t.Errorf("profile %q is made", post.Name)
		}
		f.ours = &post.ProfilePut
		f.answer(w, nil)
	case "PUT /1.0/profiles/hostler":
		f.read(r, f.ours)
		f.answer(w, nil)
	default:
		f.t.Errorf("unexpected request %s %s", r.Method, r.URL.Path)
		f.fail(w, http.StatusNotFound, "not found")
	}
}

// listing answers with whole objects, or with their paths if recursion was not
// requested, like LXD.
func listing[T any](r *http.Request, prefix string, all []T, name func(T) string) any {
	if r.URL.Query().Get("recursion") == "1" {
		return all
	}
	paths := []string{}
	for _, one := range all {
		paths = append(paths, prefix+name(one))
	}
	return paths
}

func (f *fakeLXD) read(r *http.Request, into any) {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		f.t.Error(err)
	}
}

func (f *fakeLXD) answer(w http.ResponseWriter, metadata any) {
	data, err := json.Marshal(metadata)
	if err != nil {
		f.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "sync", "status": "Success", "status_code": 200, "metadata": json.RawMessage(data)})
}

func (f *fakeLXD) fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": message, "error_code": code})
}

// String lists the changes.
func (f *fakeLXD) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.mutations, "\n")
}

func debianDir(p paths.Paths) string { return filepath.Join(p.Root, paths.DebianLXDDir) }
