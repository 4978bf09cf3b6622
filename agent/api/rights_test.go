package api

import (
	"context"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler/agent/client"
	"hostler/agent/declare"
	"hostler/agent/spec"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
)

// wantRights is a second copy of the rights: it reveals a new route or a
// changed right.
var wantRights = map[right][]string{
	rightRead: {
		"GET /metrics", "GET /v1/declarations", "GET /v1/doctor", "GET /v1/events", "GET /v1/filesystems", "GET /v1/harvest",
		"GET /v1/images", "GET /v1/images/available", "GET /v1/machines", "GET /v1/networks", "GET /v1/objects/{kind}/{name}",
		"GET /v1/attachments", "GET /v1/block-devices", "GET /v1/status", "GET /v1/version", "GET /v1/volumes", "GET /v1/watch/events", "GET /v1/watch/folder", "GET /v1/watch/rows", "POST /v1/plan",
	},
	rightConsole: {"GET /v1/machines/{name}/log"},
	rightChange: {
		"GET /v1/export", "POST /v1/adopt", "POST /v1/adopt-host", "POST /v1/apply", "POST /v1/allow", "POST /v1/delete", "POST /v1/guard/confirm", "POST /v1/guard/revert", "POST /v1/images/build", "POST /v1/images/delete",
		"POST /v1/images/import", "POST /v1/machines/{name}/console", "POST /v1/machines/{name}/exec", "POST /v1/machines/{name}/power",
		"POST /v1/machines/{name}/release", "POST /v1/migrate", "POST /v1/retry", "POST /v1/volumes/{name}/resize", "PUT /v1/harvest",
	},
}

func TestEveryRouteNeedsTheRightThatIsWrittenDown(t *testing.T) {
	want := map[string]right{}
	for r, rows := range wantRights {
		for _, row := range rows {
			want[row] = r
		}
	}
	for _, rt := range newBench(t).table() {
		key := rt.method + " " + rt.path
		if strings.HasPrefix(rt.path, "/v1/worker/") {
			if rt.right != rightWorker {
				t.Errorf("%s needs %s, want worker", key, rt.right)
			}
			continue
		}
		if rt.right != want[key] {
			t.Errorf("%s needs %q, want %q", key, rt.right, want[key])
		}
		delete(want, key)
	}
	for key := range want {
		t.Errorf("%s is not in the table", key)
	}
}

// Attack: API
func TestEveryRouteByEveryRole(t *testing.T) {
	b := newBench(t)
	roles := map[string]struct {
		peerCredentials
		may []right
	}{
		"root":                 {peer(0, 0), []right{rightRead, rightConsole, rightChange, rightWorker}},
		"hostler-admin":        {peer(2000, adminGID), []right{rightRead, rightConsole, rightChange, rightWorker}},
		"hostler-admin beside": {peer(2001, 100, 5, adminGID), []right{rightRead, rightConsole, rightChange, rightWorker}},
		"hostler":              {peer(2002, readerGID), []right{rightRead}},
		"hostler beside":       {peer(2003, 100, readerGID, 5), []right{rightRead}},
		"worker lxd":           {peer(lxdUID, 900), []right{rightWorker}},
		"worker kvm":           {peer(kvmUID, 900), nil}, // the request is for lxd
		"worker in hostler":    {peer(lxdUID, readerGID, adminGID), []right{rightWorker}},
		"stranger":             {peer(otherUID, 100, 5, 6), nil},
		"stranger in group 0":  {peer(otherUID, 0, 0), nil},
	}
	const denied = `{"type":"about:blank","title":"Forbidden","status":403,"detail":"you may not do this","kind":"forbidden"}` + "\n"
	for _, rt := range b.table() {
		for name, role := range roles {
			target := strings.NewReplacer("{name}", "absent", "{kind}", "machine", "{type}", "lxd").Replace(rt.path)
			w := b.as(role.peerCredentials, rt.method, target, "", "")
			if may := slices.Contains(role.may, rt.right); may == (w.Code == http.StatusForbidden) {
				t.Errorf("%s as %s: status %d, may: %v", rt.method+" "+rt.path, name, w.Code, may)
			} else if !may && w.Body.String() != denied {
				t.Errorf("%s as %s: body %q", rt.method+" "+rt.path, name, w.Body)
			}
		}
	}
	// Absent objects are not revealed to callers without rights.
	for _, target := range []string{"/v1/nothing", "/v1/machines/absent/log", "/openapi.json", "/"} {
		if w := b.as(peer(otherUID, 100), "GET", target, "", ""); w.Code != http.StatusForbidden || w.Body.String() != denied {
			t.Errorf("%s as a stranger: %d %q", target, w.Code, w.Body)
		}
	}
}

// Consoles show the output of a first boot, including passwords.
// Attack: API
func TestReadersSeeConsolesOnlyWhereTheHostSaysSo(t *testing.T) {
	b := newBench(t)
	b.machine("web", "alive", lxdMachine("web"), running("web"))
	for _, c := range []struct {
		open bool
		peer peerCredentials
		want int
	}{
		{false, peer(2002, readerGID), http.StatusForbidden},
		{false, peer(2000, adminGID), http.StatusOK},
		{false, peer(0, 0), http.StatusOK},
		{true, peer(2002, readerGID), http.StatusOK},
		{true, peer(2000, adminGID), http.StatusOK},
		{true, peer(otherUID, 100), http.StatusForbidden},
		{true, peer(lxdUID, readerGID), http.StatusForbidden},
	} {
		b.o.ReadersSeeConsoles = func() bool { return c.open }
		for _, query := range []string{"", "?tail=1"} {
			if w := b.as(c.peer, "GET", "/v1/machines/web/log"+query, "", ""); w.Code != c.want {
				t.Errorf("%s open: %v, uid %d: %d %s", query, c.open, c.peer.UID, w.Code, w.Body)
			}
		}
	}
}

// wantParts is a second copy of each role's limits: connections, streams and
// plans per uid and of all its uids, and requests per second.
var wantParts = map[share]part{
	"root":     {conns: bound{160, 160}, streams: bound{160, 160}, plans: bound{2, 2}, rate: 1000, burst: 2000, waits: true},
	"admin":    {conns: bound{64, 96}, streams: bound{16, 64}, plans: bound{1, 2}, rate: 20, burst: 40, waits: true},
	"worker":   {conns: bound{64, 192}, streams: bound{16, 48}, rate: 1000, burst: 2000},
	"reader":   {conns: bound{32, 64}, streams: bound{16, 48}, plans: bound{1, 2}, rate: 20, burst: 40, yields: true},
	"stranger": {conns: bound{16, 16}, rate: 20, burst: 40, yields: true},
}

func TestEveryRoleHasThePartThatIsWrittenDown(t *testing.T) {
	if !maps.Equal(parts, wantParts) {
		t.Errorf("parts are %+v, want %+v", parts, wantParts)
	}
	if maxReaderBody != 1<<20 || maxReaderDocuments != 256 || maxReaderObjects != 4000 || maxReaderNetworks != 500 {
		t.Errorf("a reader plans %d bytes, %d documents, %d objects, %d networks", maxReaderBody, maxReaderDocuments, maxReaderObjects, maxReaderNetworks)
	}
	for who, c := range map[share]caller{
		"root": {role: roleAdmin}, "admin": {peerCredentials: peer(2000, adminGID), role: roleAdmin}, "reader": {peerCredentials: peer(2002, readerGID), role: roleReader},
		"worker": {peerCredentials: peer(lxdUID, 900), role: roleWorker}, "stranger": {peerCredentials: peer(otherUID, 100), role: roleStranger},
	} {
		if c.share() != who {
			t.Errorf("%+v has the part of %s, want %s", c, c.share(), who)
		}
	}
}

func TestAGroupThatDoesNotExistGivesNobodyARight(t *testing.T) {
	none := func(string) (uint32, error) { return 0, fault.New(fault.NotFound, "no such group") }
	if c := callerOf(peer(1000, 0), Workers{}, "hostler-admin", "hostler", none); c.role != roleStranger {
		t.Errorf("role %s, want stranger", c.role)
	}
	if c := callerOf(peer(1000, adminGID), Workers{}, "", "", func(string) (uint32, error) { return adminGID, nil }); c.role != roleStranger {
		t.Errorf("role %s with no group configured, want stranger", c.role)
	}
}

// A provisioner that runs as root has the group of its type, by which it has only
// its worker's rights.
func TestARootProvisionerHasItsWorkersRights(t *testing.T) {
	b := newBench(t)
	b.machine("web", "alive", lxdMachine("web"), running("web"))
	for _, p := range []peerCredentials{peer(0, 0, 900, lxcGID), peer(0, lxcGID), peer(0, lxcGID, adminGID)} {
		c := b.o.caller(p)
		if c.role != roleWorker || c.containerType != spec.LXC {
			t.Errorf("groups %d %v: %s of %q", p.GID, p.Groups, c.role, c.containerType)
		}
		if w := b.as(p, "GET", "/v1/machines", "", ""); w.Code != http.StatusForbidden {
			t.Errorf("groups %d %v: %d %s", p.GID, p.Groups, w.Code, w.Body)
		}
	}
	if c := b.o.caller(peer(otherUID, lxcGID)); c.role != roleStranger {
		t.Errorf("another user with the group is a %s", c.role)
	}
}

// The package of a type may be installed, and its group made, while the agent
// runs.
func TestAProvisionersLaterGroupLimitsIt(t *testing.T) {
	var made Workers
	b := newBench(t, func(o *Options) { o.Workers = func() Workers { return made } })
	if c := b.bound.caller(peer(0, lxcGID)); c.role != roleAdmin {
		t.Errorf("root is %s before the group is made", c.role)
	}
	made.Groups = map[uint32]spec.ContainerType{lxcGID: spec.LXC}
	if c := b.bound.caller(peer(0, lxcGID)); c.role != roleWorker || c.containerType != spec.LXC {
		t.Errorf("the provisioner is %s of %q", c.role, c.containerType)
	}
}

// dialAs is hosttest.DialAs for connections that must succeed.
func dialAs(t *testing.T, socket string, uid, gid uint32, groups ...uint32) net.Conn {
	t.Helper()
	conn, err := hosttest.DialAs(socket, uid, gid, groups...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Attack: API
func TestThePeerIsWhoTheKernelSays(t *testing.T) {
	dir := hosttest.SocketDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	many := make([]uint32, 100) // more than fit into the first buffer
	for i := range many {
		many[i] = uint32(70000 + i)
	}
	for _, groups := range [][]uint32{nil, {readerGID, adminGID}, many} {
		dialAs(t, socket, otherUID, 61099, groups...)
		c, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p, err := peerOf(c)
		if err != nil {
			t.Fatal(err)
		}
		if p.UID != otherUID || p.GID != 61099 || p.PID != int32(os.Getpid()) || len(p.Groups) != len(groups) {
			t.Errorf("peer %+v, want uid %d, gid 61099, %d groups", p, otherUID, len(groups))
		}
		for i := range groups {
			if p.Groups[i] != groups[i] && len(groups) > 2 {
				t.Errorf("group %d is %d, want %d", i, p.Groups[i], groups[i])
			}
		}
	}
}

func TestAReaderDoesNotSeeSecrets(t *testing.T) {
	b := newBench(t)
	rec := lxdMachine("web")
	rec.Machine.CloudInit.UserData = "#cloud-config\npassword: hunter2\n"
	b.machine("web", "alive", rec, running("web"))
	b.store.put(id(spec.KindDeclaration, "web"), "alive", spec.DeclarationRecord{
		Source:   "apply",
		Document: spec.Declaration{Version: 1, Name: "web", Machines: map[string]spec.Machine{"web": rec.Machine}},
	}, nil)
	for _, target := range []string{"/v1/objects/machine/web", "/v1/objects/declaration/web"} {
		if w := b.as(peer(2002, readerGID), "GET", target, "", ""); w.Code != 200 || strings.Contains(w.Body.String(), "hunter2") ||
			!strings.Contains(w.Body.String(), hidden) {
			t.Errorf("%s as a reader: %d %s", target, w.Code, w.Body)
		}
		if w := b.asRoot("GET", target, ""); !strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%s as root: %s", target, w.Body)
		}
	}
	b.store.put(id(spec.KindHost, spec.HostName), "alive", spec.HostRecord{Config: spec.Config{Proxy: spec.ProxyConfig{HTTP: "http://me:hunter2@proxy"}}}, nil)
	if w := b.as(peer(2002, readerGID), "GET", "/v1/objects/host/host", "", ""); w.Code != 200 || strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("the host as a reader: %d %s", w.Code, w.Body)
	}
}

// scoped warns about every object in scope.
type scoped struct{ Planner }

func (scoped) Warnings(_ context.Context, _ []declare.Planned, scope map[string]bool) []string {
	return slices.Sorted(maps.Keys(scope))
}

// The agent may look for any file of the host.
// Attack: API
func TestAReadersPlanDoesNotTellWhichFilesExist(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Service.Planner = scoped{o.Service.Planner} })
	document := client.Document{Name: "d", Content: `
version: 1
machines:
  web: {type: lxd, image: debian/12}
  key: {type: lxd, image: "file:/root/.ssh/id_ed25519#sha256=` + strings.Repeat("0", 64) + `"}
`}
	for _, c := range []struct {
		role role
		want []string
	}{
		{roleReader, []string{"machine/web"}},
		{roleAdmin, []string{"machine/key", "machine/web"}},
	} {
		ctx := withCaller(t.Context(), caller{peerCredentials: peer(2002, readerGID), role: c.role})
		answer, err := b.plan(ctx, &in[client.ApplyRequest]{Body: client.ApplyRequest{Documents: []client.Document{document}}})
		if err != nil || !slices.Equal(answer.Body.Warnings, c.want) {
			t.Errorf("%s: %+v, %v", c.role, answer, err)
		}
	}
}
