package lxd

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
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

// Instances that are created together get the extra profile by one request. A
// profile of another user is looked up again each time.
func TestCreatesShareALookAtTheProfile(t *testing.T) {
	for what, c := range map[string]struct {
		config   map[string]string
		lasts    time.Duration
		requests int
	}{
		"together":           {map[string]string{"user.hostler.profile": "true"}, time.Minute, 1},
		"one after another":  {map[string]string{"user.hostler.profile": "true"}, time.Nanosecond, 3},
		"of another's alone": {nil, time.Minute, 3},
	} {
		f := newFakeLXD(t)
		f.answer("GET /1.0/profiles/hostler", api.Profile{Name: "hostler", Config: c.config})
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
