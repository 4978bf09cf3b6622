package agent

import (
	"maps"
	"os/user"
	"testing"

	"hostler/agent/spec"
)

// A provisioner's group counts without its user. Root's group never does.
func TestWorkerUnits(t *testing.T) {
	users := map[string]string{"hostler-lxd": "991", "hostler-kvm": "992"}
	groups := map[string]string{"hostler-lxd": "881", "hostler-lxc": "883", "hostler-incus": "0"}
	got := workerUnits([]spec.ContainerType{spec.LXD, spec.KVM, spec.LXC, spec.Incus},
		func(name string) (*user.User, error) {
			if id, there := users[name]; there {
				return &user.User{Uid: id, Gid: "77"}, nil
			}
			return nil, user.UnknownUserError(name)
		},
		func(name string) (*user.Group, error) {
			if id, there := groups[name]; there {
				return &user.Group{Gid: id}, nil
			}
			return nil, user.UnknownGroupError(name)
		})
	if want := map[uint32]spec.ContainerType{991: spec.LXD, 992: spec.KVM}; !maps.Equal(got.Users, want) {
		t.Errorf("users %v, want %v", got.Users, want)
	}
	if want := map[uint32]spec.ContainerType{881: spec.LXD, 883: spec.LXC}; !maps.Equal(got.Groups, want) {
		t.Errorf("groups %v, want %v", got.Groups, want)
	}
}
