package client

import (
	"encoding/json"
	"time"

	"hostler/agent/spec"
	"hostler/internal/fault"
)

// Outcome is an element of a bulk answer, in the order of the request.
type Outcome struct {
	Object string     `json:"object"` // KIND/NAME
	Error  string     `json:"error,omitempty"`
	Kind   fault.Kind `json:"kind,omitempty"`
}

// Err returns the element's error with its kind, or nil on success.
func (o Outcome) Err() error {
	if o.Error == "" {
		return nil
	}
	return fault.New(o.Kind, "%s", o.Error)
}

// DeleteRequest names the objects to delete, as KIND/NAME.
type DeleteRequest struct {
	Objects []string `json:"objects" minItems:"1" maxItems:"10000"`
}

// DeleteAnswer holds an outcome per element of the request.
type DeleteAnswer struct {
	Outcomes []Outcome `json:"outcomes"`
}

// AllowRequest consents to an impact on objects, as KIND/NAME.
type AllowRequest struct {
	Impact  string   `json:"impact" enum:"restart,recreate,destroy"`
	Objects []string `json:"objects" minItems:"1" maxItems:"10000"`
}

// PowerRequest requests a power action: start, stop or restart.
type PowerRequest struct {
	Action string `json:"action" enum:"start,stop,restart"`
}

// MigrateRequest moves machines between container types. No machines means all
// machines of the type From.
type MigrateRequest struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	Machines []string `json:"machines,omitempty" maxItems:"10000"`
	// DryRun only returns the steps.
	DryRun bool `json:"dry-run,omitempty"`
}

// MigrationStep is the move of a machine.
type MigrationStep struct {
	Machine string `json:"machine"`
	UID     string `json:"uid"`
	Detail  string `json:"detail"`
	// Refused says why the machine cannot be moved. It is empty if it can.
	Refused string `json:"refused,omitempty"`
}

// MigrateAnswer holds a step per machine.
type MigrateAnswer struct {
	Steps []MigrationStep `json:"steps"`
}

// RetryRequest names an object (KIND/NAME) whose error should be cleared.
type RetryRequest struct {
	Object string `json:"object" maxLength:"256"`
	// Force detaches a volume or filesystem in this attempt even if a process
	// holds it.
	Force bool `json:"force,omitempty"`
}

// AdoptRequest names an instance to take under declaration.
type AdoptRequest struct {
	Type     string `json:"type"`
	Instance string `json:"instance" maxLength:"256"`
}

// Guarded is a change of the host's own network that is not kept yet.
type Guarded struct {
	// Object is KIND/NAME.
	Object string `json:"object"`
	// Phase is "changing", or "confirming" while the change waits for `hostler
	// confirm`.
	Phase string    `json:"phase"`
	Since time.Time `json:"since"`
	// Deadline is when the change is undone.
	Deadline time.Time `json:"deadline"`
	// Watched says whether the watchdog that undoes the change is running.
	Watched bool `json:"watched"`
}

// GuardAnswer names the object whose change was kept or undone.
type GuardAnswer struct {
	Object string `json:"object"`
}

// Harvest holds the harvest mode in force, the configured mode and the
// override, which is "" if there is none.
type Harvest struct {
	Mode       string `json:"mode"`
	Configured string `json:"configured"`
	Override   string `json:"override"`
}

// HarvestRequest sets the mode. An empty mode returns to the configured mode.
type HarvestRequest struct {
	Mode string `json:"mode" enum:",none,unknown,destroyed,all"`
}

// Version is the agent's part of `hostler version`.
type Version struct {
	Version   string `json:"version"`
	Namespace string `json:"namespace"`
	PID       int    `json:"pid"`
}

// ImageImportRequest names a file of the host to import into the cache.
type ImageImportRequest struct {
	// Path is absolute.
	Path      string `json:"path" maxLength:"4096"`
	Reference string `json:"reference" maxLength:"512"`
	// Digest is the sha256 in hex; if it is empty, the agent computes it and
	// returns it.
	Digest string `json:"digest,omitempty" maxLength:"80"`
}

// ImageRequest names an image by its reference.
type ImageRequest struct {
	Reference string `json:"reference" maxLength:"512"`
}

// ImageBuildRequest names an image to build and the container type whose format
// the image gets. An empty type means lxd.
type ImageBuildRequest struct {
	Reference string             `json:"reference" maxLength:"512"`
	Type      spec.ContainerType `json:"type,omitempty"`
}

// ExecRequest starts a command in a machine; the streams follow as frames after
// the upgrade.
type ExecRequest struct {
	Command  []string          `json:"command" minItems:"1"`
	Env      map[string]string `json:"env,omitempty"`
	Terminal bool              `json:"terminal,omitempty"`
	Width    int               `json:"width,omitempty" minimum:"0" maximum:"65535"`
	Height   int               `json:"height,omitempty" minimum:"0" maximum:"65535"`
}

// Progress is a report of a long operation. Percent is -1 if unknown.
type Progress struct {
	Message string `json:"message"`
	Percent int    `json:"percent"`
}

// FolderState says whether the files of conf.d are in force.
type FolderState struct {
	Path string `json:"path"`
	// Read is true if all files were read in their present form.
	Read bool `json:"read"`
	// Refused are the files that are not in force, sorted by path.
	Refused []RefusedFile `json:"refused"`
}

// RefusedFile is a file of conf.d, or the folder itself, that is not in force.
type RefusedFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	// Retried is true if the reason may pass without a change of a document that is
	// there, e.g. when another file declares a missing object.
	Retried bool `json:"retried"`
}

// Rows are all current rows of a kind. Kind is in the plural, e.g. machines.
type Rows struct {
	Kind string          `json:"kind"`
	Rows json.RawMessage `json:"rows"`
}

// Line is a line of a stream. A line without any field is a heartbeat.
type Line struct {
	Rows     *Rows        `json:"rows,omitempty"`
	Event    *Event       `json:"event,omitempty"`
	Progress *Progress    `json:"progress,omitempty"`
	Image    *Image       `json:"image,omitempty"`
	Folder   *FolderState `json:"folder,omitempty"`
	// Problem ends the stream.
	Problem *Problem `json:"problem,omitempty"`
	// Done ends the stream of a successful operation.
	Done bool `json:"done,omitempty"`
}
