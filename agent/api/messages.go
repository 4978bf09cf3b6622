package api

import (
	"encoding/json"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

// Outcome is one element of a bulk answer, in the order asked.
type Outcome struct {
	Object string     `json:"object"` // KIND/NAME
	Error  string     `json:"error,omitempty"`
	Kind   fault.Kind `json:"kind,omitempty"`
}

// Err returns the element's error with its kind, nil if it went well.
func (o Outcome) Err() error {
	if o.Error == "" {
		return nil
	}
	return fault.New(o.Kind, "%s", o.Error)
}

// DeleteRequest names what to delete, as KIND/NAME.
type DeleteRequest struct {
	Objects []string `json:"objects" minItems:"1" maxItems:"10000"`
}

// DeleteAnswer holds one outcome per element of the request.
type DeleteAnswer struct {
	Outcomes []Outcome `json:"outcomes"`
}

// PowerRequest asks for a power state: start, stop or restart.
type PowerRequest struct {
	Action string `json:"action" enum:"start,stop,restart"`
}

// RetryRequest names an object (KIND/NAME) whose error is to be cleared.
type RetryRequest struct {
	Object string `json:"object" maxLength:"256"`
	// Force has a volume or filesystem detached in this attempt although
	// something holds it.
	Force bool `json:"force,omitempty"`
}

// AdoptRequest names an instance to take over.
type AdoptRequest struct {
	Type     string `json:"type" enum:"lxd,kvm,lxc"`
	Instance string `json:"instance" maxLength:"256"`
}

// Harvest is the harvest mode: as configured, as overridden ("" when it is
// not), and what holds.
type Harvest struct {
	Mode       string `json:"mode"`
	Configured string `json:"configured"`
	Override   string `json:"override"`
}

// HarvestRequest sets the mode; empty goes back to the configured one.
type HarvestRequest struct {
	Mode string `json:"mode" enum:",none,unknown,destroyed,all"`
}

// Version answers `hostler version` for the agent's side.
type Version struct {
	Version   string `json:"version"`
	Namespace string `json:"namespace"`
	PID       int    `json:"pid"`
}

// ImageImportRequest names a file on the host to take into the cache.
type ImageImportRequest struct {
	// Path is absolute.
	Path      string `json:"path" maxLength:"4096"`
	Reference string `json:"reference" maxLength:"512"`
	// Digest is the sha256 in hex; empty: it is computed and told.
	Digest string `json:"digest,omitempty" maxLength:"80"`
}

// ImageRequest names one image by its reference.
type ImageRequest struct {
	Reference string `json:"reference" maxLength:"512"`
}

// ImageBuildRequest names an image to build and the container type whose form
// it gets; empty means lxd.
type ImageBuildRequest struct {
	Reference string             `json:"reference" maxLength:"512"`
	Type      spec.ContainerType `json:"type,omitempty" enum:"lxd,kvm"`
}

// ExecRequest starts a command in a machine; the streams follow as frames
// after the upgrade.
type ExecRequest struct {
	Command  []string          `json:"command" minItems:"1"`
	Env      map[string]string `json:"env,omitempty"`
	Terminal bool              `json:"terminal,omitempty"`
	Width    int               `json:"width,omitempty" minimum:"0" maximum:"65535"`
	Height   int               `json:"height,omitempty" minimum:"0" maximum:"65535"`
}

// Progress is one report of a long operation. Percent is -1 where it cannot
// be known.
type Progress struct {
	Message string `json:"message"`
	Percent int    `json:"percent"`
}

// Rows are all rows of a kind (in the plural) as they are now.
type Rows struct {
	Kind string          `json:"kind"`
	Rows json.RawMessage `json:"rows"`
}

// message is one line of a stream. A line without any field is a heartbeat.
// Machines is a pointer so that an empty list is told from none.
type message struct {
	Machines *[]Machine `json:"machines,omitempty"`
	Rows     *Rows      `json:"rows,omitempty"`
	Event    *Event     `json:"event,omitempty"`
	Progress *Progress  `json:"progress,omitempty"`
	Image    *Image     `json:"image,omitempty"`
	// Problem ends the stream.
	Problem *Problem `json:"problem,omitempty"`
	// Done ends the stream of an operation that went well.
	Done bool `json:"done,omitempty"`
}
