package images

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"hostler/agent/spec"
	"hostler/containerbroker"
	"hostler/containerbroker/images"
	"hostler/internal/fault"
)

// store holds the images of a hypervisor by their ids.
type store struct {
	containerbroker.ImageStore
	all []containerbroker.HypervisorImage
}

func (s *store) ListImages(context.Context) ([]containerbroker.HypervisorImage, error) {
	return slices.Clone(s.all), nil
}

func (s *store) DeleteImage(_ context.Context, id string) error {
	i := slices.IndexFunc(s.all, func(image containerbroker.HypervisorImage) bool { return image.ID == id })
	if users := s.all[i].UsedBy; len(users) > 0 {
		return fault.New(fault.Conflict, "cannot delete image %s: it is used by %s", id, users[0])
	}
	s.all = slices.Delete(s.all, i, i+1)
	return nil
}

// A version of an image that is in use keeps no other version.
func TestDeleteOfAllUnusedVersions(t *testing.T) {
	cache, err := images.Open(images.Options{Dir: filepath.Join(t.TempDir(), "images")})
	if err != nil {
		t.Fatal(err)
	}
	version := func(id string, users ...string) containerbroker.HypervisorImage {
		return containerbroker.HypervisorImage{ID: id, Reference: "debian/12", UsedBy: users}
	}
	stores := map[spec.ContainerType]*store{
		spec.KVM: {all: []containerbroker.HypervisorImage{version("11111111", "db"), version("22222222"), version("33333333")}},
		spec.LXD: {all: []containerbroker.HypervisorImage{version("11111111"), version("22222222", "web"), version("33333333")}},
	}
	s := Service{Cache: cache, Types: []spec.ContainerType{spec.KVM, spec.LXD}, Of: func(t spec.ContainerType) (containerbroker.ImageStore, error) {
		return stores[t], nil
	}}
	err = s.Delete(t.Context(), "debian/12")
	const want = "cannot delete image debian/12: it is used by db; cannot delete image debian/12: it is used by web"
	if !fault.Is(err, fault.Conflict) || err.Error() != want {
		t.Errorf("got %v", err)
	}
	for kind, left := range stores {
		if len(left.all) != 1 || len(left.all[0].UsedBy) != 1 {
			t.Errorf("%s has %+v", kind, left.all)
		}
	}
	for _, one := range stores {
		one.all[0].UsedBy = nil
	}
	if err := s.Delete(t.Context(), "debian/12"); err != nil {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), "debian/12"); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}

// The names of a hypervisor's images include the fingerprints, by which an exported
// machine names its image.
func TestNamesIncludeFingerprints(t *testing.T) {
	s := Service{Of: func(spec.ContainerType) (containerbroker.ImageStore, error) {
		return &store{all: []containerbroker.HypervisorImage{{ID: "11111111", Aliases: []string{"tiny"}}, {ID: "22222222"}}}, nil
	}}
	if got := s.Names(t.Context(), spec.LXD); !slices.Equal(got, []string{"tiny", "11111111", "22222222"}) {
		t.Errorf("got %v", got)
	}
}
