package api

import (
	"testing"

	"hostler/agent/spec"
	"hostler/agent/state"
)

func TestRowsOfStorageAndNetworks(t *testing.T) {
	volume := state.Object{
		ID: state.ID{Kind: spec.KindVolume, Name: "data"}, Life: state.Alive,
		Spec:   spec.Encode(spec.VolumeRecord{Header: spec.Header{Declaration: "site"}, Volume: spec.Volume{Provider: "loop", Size: 7}}),
		Status: spec.Encode(spec.StorageStatus{State: spec.StorageAttached, Device: "/dev/loop3", Attachments: map[string]spec.AttachmentStatus{"web": {State: spec.StorageAttached, Source: "/dev/loop3"}}}),
	}
	row, err := volumeRow(volume)
	if err != nil || row.Provider != "loop" || row.Size != 7 || row.Device != "/dev/loop3" || len(row.Attachments) != 1 || row.Attachments[0].Machine != "web" {
		t.Errorf("%+v %v", row, err)
	}
	network := state.Object{
		ID: state.ID{Kind: spec.KindNetwork, Name: "lan"}, Life: state.Alive,
		Spec:   spec.Encode(spec.NetworkRecord{Network: spec.Network{Bridge: "br-lan"}}),
		Status: spec.Encode(spec.NetworkStatus{Guests: map[string]spec.GuestAddress{"web/eth0": {Addresses: []string{"10.0.0.2/24"}}}}),
	}
	lan, err := networkRow(network)
	if err != nil || lan.Bridge != "br-lan" || lan.Status != "pending" || len(lan.Guests["web/eth0"]) != 1 {
		t.Errorf("%+v %v", lan, err)
	}
}
