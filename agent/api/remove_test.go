package api

import (
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/internal/fault"
	"hostler/internal/fault/faulttest"
)

const storedSite = `version: 1
networks:
  lan: {bridge: br-lan}
volumes:
  data: {provider: loop, size: 1GiB}
  spare: {provider: loop, size: 1GiB}
filesystems:
  www: {volume: data, type: ext4}
machines:
  web: {type: lxd, image: debian/12, networks: {eth0: {network: lan}}, storage: [{filesystem: www, path: /srv}]}
`

// Networks, volumes and filesystems are deleted by name like machines, unless
// another object refers to them. Users that are deleted in the same request do
// not count, in any order.
func TestDeleteNetworksAndStorage(t *testing.T) {
	for name, c := range map[string]struct {
		objects []string
		kinds   []fault.Kind
		words   []string // of the first error
		dying   []string
		left    []string // objects that remain in the declaration
	}{
		"absent": {
			[]string{"volume/none", "network/none", "filesystem/none"},
			[]fault.Kind{fault.NotFound, fault.NotFound, fault.NotFound},
			[]string{"volume/none is not there"},
			nil,
			[]string{"filesystem/www", "machine/web", "network/lan", "volume/data", "volume/spare"},
		},
		"unused": {
			[]string{"volume/spare", "volume/spare"},
			[]fault.Kind{"", ""},
			nil,
			[]string{"volume/spare"},
			[]string{"filesystem/www", "machine/web", "network/lan", "volume/data"},
		},
		"used": {
			[]string{"volume/data", "filesystem/www", "network/lan"},
			[]fault.Kind{fault.Conflict, fault.Conflict, fault.Conflict},
			[]string{"cannot remove volume/data", "filesystem/www", "of the declaration site", "delete that too"},
			nil,
			[]string{"filesystem/www", "machine/web", "network/lan", "volume/data", "volume/spare"},
		},
		"with its users": {
			[]string{"volume/data", "filesystem/www", "machine/web"},
			[]fault.Kind{"", "", ""},
			nil,
			[]string{"filesystem/www", "machine/web", "volume/data"},
			[]string{"network/lan", "volume/spare"},
		},
		"everything": {
			[]string{"volume/data", "network/lan", "filesystem/www", "volume/spare", "machine/web"},
			[]fault.Kind{"", "", "", "", ""},
			nil,
			[]string{"filesystem/www", "machine/web", "network/lan", "volume/data", "volume/spare"},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			client := b.listen(t)
			if _, err := client.Apply(t.Context(), request("site", storedSite)); err != nil {
				t.Fatal(err)
			}
			outcomes, err := client.Delete(t.Context(), c.objects)
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range outcomes {
				if o.Object != c.objects[i] || fault.KindOf(o.Err()) != c.kinds[i] {
					t.Errorf("%s: %v, want kind %q", o.Object, o.Err(), c.kinds[i])
				}
			}
			if len(c.words) > 0 {
				faulttest.Want(t, outcomes[0].Err(), c.kinds[0], c.words...)
			}
			objects, _, err := b.store.List(t.Context(), spec.KindMachine, spec.KindNetwork, spec.KindVolume, spec.KindFilesystem)
			if err != nil {
				t.Fatal(err)
			}
			var dying []string
			for _, o := range objects {
				if o.Life == state.Dying {
					dying = append(dying, o.Kind+"/"+o.Name)
				}
			}
			slices.Sort(dying)
			if !slices.Equal(dying, c.dying) {
				t.Errorf("dying %v, want %v", dying, c.dying)
			}
			rows, err := client.Declarations(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(c.left) == 0 && len(rows) != 0 || len(c.left) > 0 && (len(rows) != 1 || !slices.Equal(rows[0].Objects, c.left)) {
				t.Errorf("declarations %+v, want %v", rows, c.left)
			}
		})
	}
}

// An object that a file declares cannot be deleted.
// A formerly known machine is declared again with its former uid.
