package spec

import "slices"

// The impacts of Header.Allow.
const (
	AllowRestart  = "restart"
	AllowRecreate = "recreate"
)

// Header begins the record of each declared object: a machine, network, volume
// or filesystem.
type Header struct {
	// Declaration names the declaration that owns the object, or owned it last.
	Declaration string `json:"declaration"`
	// Allow lists the impacts that the user allowed for this generation.
	Allow []string `json:"allow,omitempty"`
	// RetryRequest counts `hostler retry` calls. Its only purpose is that each
	// call makes a new generation.
	RetryRequest int `json:"retry-request,omitempty"`
	// Force is true if the last RetryRequest detaches storage even while a process
	// holds it.
	Force bool `json:"force,omitempty"`
	// Released is true if the instance or the data survives the removal of the
	// record.
	Released bool `json:"released,omitempty"`
	// Held is empty while a document declares the object.
	Held Hold `json:"held,omitempty"`
}

// Head returns the header, for code that treats all kinds of records alike.
func (h *Header) Head() *Header { return h }

// Consent records impacts that the user allows, besides those allowed before.
func (h *Header) Consent(impacts []string) {
	h.Allow = slices.Compact(slices.Sorted(slices.Values(slices.Concat(h.Allow, impacts))))
}
