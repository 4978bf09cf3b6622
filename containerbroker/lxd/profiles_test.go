package lxd

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/gorilla/websocket"
)

// New instances get the extra profile only if hostler made it, and one request
// shows whether it did.
func TestOnlyHostlersProfileIsUsed(t *testing.T) {
	for what, c := range map[string]struct {
		config map[string]string
		want   []string
	}{
		"made by hostler":      {map[string]string{"user.hostler.profile": "true"}, []string{"default", "hostler"}},
		"made by another user": {nil, []string{"default"}},
	} {
		f := newFakeLXD(t)
		f.answer("GET /1.0/profiles/hostler", api.Profile{Name: "hostler", Config: c.config})
		d := f.driver(func(o *Options) { o.Profile = "hostler" })
		got, err := d.profiles(d.open(t.Context(), time.Minute))
		if err != nil || !slices.Equal(got, c.want) || f.count(http.MethodGet) != 1 {
			t.Errorf("%s: %v, %v after %d requests, want %v", what, got, err, f.count(http.MethodGet), c.want)
		}
	}
}

// Instances that are created together share one look at the extra profile.
func TestCreatesShareAReadOfTheProfile(t *testing.T) {
	ours := map[string]string{"user.hostler.profile": "true"}
	for what, c := range map[string]struct {
		config   map[string]string
		lasts    time.Duration
		requests int
	}{
		"together":          {ours, time.Minute, 1},
		"one after another": {ours, time.Nanosecond, 3},
		"without it":        {nil, time.Minute, 1},
	} {
		f := newFakeLXD(t)
		if c.config != nil {
			f.answer("GET /1.0/profiles/hostler", api.Profile{Name: "hostler", Config: c.config})
		}
		d := f.driver(func(o *Options) { o.Profile, o.ProfileTime = "hostler", c.lasts })
		for range 3 {
			got, err := d.profiles(d.open(t.Context(), time.Minute))
			if err != nil || slices.Contains(got, "hostler") != (c.config != nil) {
				t.Errorf("%s: %v, %v", what, got, err)
			}
		}
		if n := f.count(http.MethodGet); n != c.requests {
			t.Errorf("%s: %d requests, want %d", what, n, c.requests)
		}
	}
}

// A profile that is made between two creates is used by the second.
func TestNewProfileIsUsedByTheNextCreate(t *testing.T) {
	f := newFakeLXD(t)
	upgrader := websocket.Upgrader{}
	f.mux.HandleFunc("GET /1.0/events", func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"type": "lifecycle", "metadata": {"action": "profile-created", "source": "/1.0/profiles/hostler"}}`))
	})
	d := f.driver(func(o *Options) { o.Profile, o.ProfileTime = "hostler", time.Hour })
	profiles := func() []string {
		t.Helper()
		got, err := d.profiles(d.open(t.Context(), time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := profiles(); !slices.Equal(got, []string{"default"}) {
		t.Errorf("before it is made: %v", got)
	}
	f.answer("GET /1.0/profiles/hostler", api.Profile{Name: "hostler", Config: map[string]string{"user.hostler.profile": "true"}})
	events, err := d.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range events { // the stream ends after the event
	}
	if got := profiles(); !slices.Equal(got, []string{"default", "hostler"}) {
		t.Errorf("after it is made: %v", got)
	}
}
