package kvm

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// unseen finds no address of any guest from outside.
func unseen(listedDomain) []string { return nil }

// I10, I15: guests whose agents accept the question and never answer delay a
// listing by a single wait, do not keep other agents from being heard, and are
// left alone for a while.
func TestSilentAgentsDoNotDelayListings(t *testing.T) {
	d := New(Options{})
	d.askWithin = time.Second
	var guests []listedDomain
	for i := range 8 {
		guests = append(guests, listedDomain{
			dom: libvirt.Domain{Name: fmt.Sprint("g", i), ID: int32(i + 1)},
			def: definition{domain: libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{}}},
		})
	}
	silent := map[string]bool{"g0": true, "g1": true}
	ended := make(chan struct{})
	var asked atomic.Int32
	learn := func(dom libvirt.Domain) ([]string, bool) {
		asked.Add(1)
		if silent[dom.Name] {
			<-ended
			return nil, true
		}
		told := []string{"10.0.0." + dom.Name[1:]}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.learned[dom.Name] = lesson{life: dom.ID, addresses: told, at: time.Now()}
		return told, false
	}
	listed := func() (heard []string) {
		for i, told := range d.addresses(guests, learn, unseen) {
			if len(told) > 0 {
				heard = append(heard, guests[i].dom.Name)
			}
		}
		return heard
	}
	want := []string{"g2", "g3", "g4", "g5", "g6", "g7"}
	if heard := listed(); !slices.Equal(heard, want) {
		t.Errorf("heard %v", heard)
	}
	for range 3 {
		if heard := listed(); !slices.Equal(heard, want) {
			t.Errorf("heard %v", heard)
		}
	}
	close(ended)
	for range askedAtOnce { // until every place is taken
		d.asking <- struct{}{}
	}
	for range askedAtOnce {
		<-d.asking
	}
	if listed(); asked.Load() != 8 {
		t.Errorf("asked %d times", asked.Load())
	}

	// A new life of the guest, and an old silence, lead to a new question.
	guests[0].dom.ID, silent["g0"] = 100, false
	d.mu.Lock()
	d.learned["g1"] = lesson{life: guests[1].dom.ID, at: time.Now().Add(-leaveAlone), silent: true}
	d.mu.Unlock()
	silent["g1"] = false
	if heard := listed(); len(heard) != 8 || asked.Load() != 10 {
		t.Errorf("heard %v, asked %d times", heard, asked.Load())
	}
}

// A guest whose agent is not up yet, or has no address, is asked again at the
// next listing.
func TestAgentsWithoutAddressesAreAskedAgain(t *testing.T) {
	d := New(Options{})
	asked := 0
	guests := []listedDomain{{dom: libvirt.Domain{Name: "g", ID: 1}, def: definition{domain: libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{}}}}}
	for range 3 {
		d.addresses(guests, func(libvirt.Domain) ([]string, bool) {
			asked++
			return nil, false
		}, unseen)
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}
