package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler/agent/containersetup"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/hosttest"
	"hostler/internal/paths"
)

// The snap's LXD ignores /etc/subuid and /etc/subgid, which on Ubuntu have no
// row of root: its containers' records count, or its default. Debian's LXD and
// Incus need the row.
func TestGuestIDsOfTheSnap(t *testing.T) {
	const record = `[{"Isuid":true,"Isgid":false,"Hostid":1131072,"Nsid":0,"Maprange":65536},{"Isuid":false,"Isgid":true,"Hostid":1131072,"Nsid":0,"Maprange":65536}]`
	t.Setenv("LXD_DIR", "")
	t.Setenv("INCUS_DIR", "")
	for name, c := range map[string]struct {
		folders  []string
		of       spec.ContainerType
		recorded string
		want     uint32 // 0: there is no map
	}{
		"Debian's":             {[]string{paths.DebianLXDDir}, spec.LXD, record, 0},
		"snap, no machine":     {[]string{paths.SnapLXDDir}, spec.LXD, "", 1000000},
		"snap":                 {[]string{paths.SnapLXDDir}, spec.LXD, record, 1131072},
		"snap beside Incus":    {[]string{paths.SnapLXDDir, paths.DebianIncusDir}, spec.LXD, record, 1131072},
		"Incus beside a snap":  {[]string{paths.SnapLXDDir, paths.DebianIncusDir}, spec.Incus, record, 0},
		"classic LXC and snap": {[]string{paths.SnapLXDDir}, spec.LXC, record, 0},
	} {
		p := paths.New(t.TempDir(), "", "", "")
		for _, folder := range c.folders {
			if err := os.MkdirAll(p.Host(folder), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mknod(filepath.Join(p.Host(folder), "unix.socket"), unix.S_IFSOCK|0o600, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(p.Host("/etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{p.SubUIDs(), p.SubGIDs()} {
			if err := os.WriteFile(file, []byte("ubuntu:100000:65536\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		m, err := guestMap(p, ignoresIDs(p, c.of), func() (string, error) { return c.recorded, nil })
		if (err != nil) != (c.want == 0) || m.Users.First != c.want || m.Groups.First != c.want || err != nil && !strings.Contains(err.Error(), "run `usermod --add-subuids 1000000-1000999999 root`") {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

// Looks at the storage within a minute read the ids on record once. An error does
// not count as an answer.
func TestRecordedIDsAreRemembered(t *testing.T) {
	now, calls, fails := time.Unix(0, 0), 0, errors.New("LXD does not answer")
	r := recentIDs{now: func() time.Time { return now }, read: func(context.Context) (string, error) {
		calls++
		return "ids", fails
	}}
	if _, err := r.get(t.Context()); err == nil {
		t.Error("no error")
	}
	fails = nil
	looks := func(want int) {
		t.Helper()
		for range 20 {
			if got, err := r.get(t.Context()); got != "ids" || err != nil {
				t.Fatalf("%q, %v", got, err)
			}
		}
		if calls != want {
			t.Errorf("%d calls, not %d", calls, want)
		}
	}
	looks(2)
	now = now.Add(recordedFor)
	looks(3)
}

// Root's row of ids may come with the preparation of the host, so until that is done
// its lack is no error that needs the operator.
func TestMissingIDsOfATypeThatIsNotReady(t *testing.T) {
	store, _, err := state.Open(t.Context(), state.Options{Dir: hosttest.MemoryDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h := &host{store: store}
	reason := errors.New("no row of root")
	for _, c := range []struct {
		state string
		want  bool
	}{{"", true}, {containersetup.StateInitialising, true}, {containersetup.StateError, true}, {containersetup.StateReady, false}} {
		if c.state != "" {
			w := state.Write{
				ID: state.ID{Kind: spec.KindContainerType, Name: string(spec.LXC)}, Revision: state.AnyRevision, Life: state.Alive,
				Spec: spec.Encode(struct{}{}), Status: spec.Encode(spec.TypeStatus{State: c.state}),
			}
			if c.state == containersetup.StateInitialising {
				w.Revision = 0 // a new object
			}
			if _, err := store.Write(t.Context(), state.Atomic, w); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.withoutMap(t.Context(), spec.LXC, reason); fault.Is(err, fault.NotReady) != c.want || err.Error() != reason.Error() {
			t.Errorf("%q: %v", c.state, err)
		}
	}
	if err := h.withoutMap(t.Context(), spec.LXC, nil); err != nil {
		t.Error(err)
	}
}
