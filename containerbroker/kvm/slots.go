package kvm

import (
	"encoding/xml"
	"strconv"

	"hostler/containerbroker"
)

// anySlots means that the number of free slots is unknown.
const anySlots = -1

// freeSlots returns how many devices can be plugged into the running guest that
// a definition describes. On PCI Express each root port takes a single device,
// and a running guest cannot get another root port.
func freeSlots(text string) int {
	var domain struct {
		Devices struct {
			All []struct {
				XMLName xml.Name
				Type    string `xml:"type,attr"`
				Model   string `xml:"model,attr"`
				Index   string `xml:"index,attr"`
				Address struct {
					Type string `xml:"type,attr"`
					Bus  string `xml:"bus,attr"`
				} `xml:"address"`
			} `xml:",any"`
		} `xml:"devices"`
	}
	if xml.Unmarshal([]byte(text), &domain) != nil {
		return anySlots
	}
	express := false
	free, taken := map[uint64]bool{}, map[uint64]bool{}
	for _, device := range domain.Devices.All {
		if device.XMLName.Local == "controller" && device.Type == "pci" {
			bus, err := strconv.ParseUint(device.Index, 0, 32)
			switch {
			case device.Model == "pcie-root":
				express = true
			case device.Model == "pcie-root-port" && err == nil:
				free[bus] = true
			}
		}
		if bus, err := strconv.ParseUint(device.Address.Bus, 0, 32); err == nil && device.Address.Type == "pci" {
			taken[bus] = true
		}
	}
	if !express {
		return anySlots
	}
	for bus := range taken {
		delete(free, bus)
	}
	return len(free)
}

// place reports whether the running guest has a slot for the device of a field.
// It counts the slots that earlier changes took and freed; an update applies
// the changes in the same order.
func (r *raw) place(field, wanted string) bool {
	_, isNIC := containerbroker.NICOf(field)
	_, isDisk := containerbroker.DiskOf(field)
	if r.plugged == nil || r.slots == anySlots || !isNIC && !isDisk {
		return true
	}
	switch has := r.plugged[field]; {
	case has && wanted == "":
		r.slots++
	case !has && wanted != "":
		if r.slots == 0 {
			return false
		}
		r.slots--
	}
	return true
}

// wantedDevice returns the wanted description of a field's device, "" for none.
func wantedDevice(s containerbroker.Settings, field string) string {
	if name, is := containerbroker.NICOf(field); is {
		return s.NICs[name]
	}
	name, _ := containerbroker.DiskOf(field)
	return s.Disks[name]
}
