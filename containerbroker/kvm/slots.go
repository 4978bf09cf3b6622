package kvm

import (
	"encoding/xml"
	"strconv"

	"hostler/containerbroker"
)

// freeSlots returns how many devices can be plugged into the running guest that
// a definition describes. On PCI Express each root port takes a single device,
// and a running guest cannot get another root port. It returns
// containerbroker.Unlimited if the number is unknown.
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
		return containerbroker.Unlimited
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
		return containerbroker.Unlimited
	}
	for bus := range taken {
		delete(free, bus)
	}
	return len(free)
}
