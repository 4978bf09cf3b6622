// Package client speaks to the agent over its unix socket. It holds the types of
// the messages in both directions; their JSON is part of the contract. It links
// neither the store nor the server, so that a program with it stays small.
package client

import (
	"encoding/json"
	"time"

	"hostler/agent/spec"
	"hostler/internal/plan"
)

// Machine is a row of `hostler get machines -o json`. Times are RFC 3339.
type Machine struct {
	Name        string             `json:"name"`
	Type        spec.ContainerType `json:"type"`
	Life        string             `json:"life"`
	Status      spec.MachineState  `json:"status"`
	Message     string             `json:"message"`
	Image       string             `json:"image"`
	Instance    string             `json:"instance"`
	Addresses   []string           `json:"addresses"`
	Created     *time.Time         `json:"created"`
	Attempts    int                `json:"attempts"`
	NextRetry   *time.Time         `json:"next-retry"`
	Declaration string             `json:"declaration"`
	UID         string             `json:"uid"`
	Generation  int64              `json:"generation"`
	// Observed says whether the status describes this generation.
	Observed   bool             `json:"observed"`
	Percent    *int             `json:"percent,omitempty"`
	Took       *spec.Took       `json:"took,omitempty"`
	Hardware   *spec.Hardware   `json:"hardware,omitempty"`
	Conditions []spec.Condition `json:"conditions"`
	// Migration is the last move to another container type.
	Migration *spec.Migration `json:"migration,omitempty"`
}

// Declaration is a row of `hostler get declarations -o json`.
type Declaration struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	// Problem says why the file's current text is not in force. It is empty if the
	// text is in force.
	Problem    string    `json:"problem,omitempty"`
	Objects    []string  `json:"objects"` // KIND/NAME, sorted
	Created    time.Time `json:"created"`
	Updated    time.Time `json:"updated"`
	Generation int64     `json:"generation"`
}

// Step is the step of any plan.
type Step = plan.Step

// Change is the change of a field in any plan.
type Change = plan.Change

// Plan is the answer of plan and apply.
type Plan struct {
	Steps []Step `json:"steps"`
	// Machines are the machines that the documents declare, so that the client can
	// follow their progress.
	Machines []string `json:"machines"`
	// Objects are the networks, volumes and filesystems (KIND/NAME) that the
	// documents declare, so that the client can follow them too.
	Objects []string `json:"objects,omitempty"`
	// Removed are the objects (KIND/NAME) that the documents no longer declare.
	Removed []string `json:"removed"`
	// Awaited are objects (KIND/NAME) that are still being removed and are created
	// again afterwards.
	Awaited []string `json:"awaited,omitempty"`
	// Gone are the declarations that were applied from files which are no longer
	// in the request's folder.
	Gone []string `json:"gone,omitempty"`
	// Warnings are texts of the form KIND/NAME: TEXT. They predict failures after
	// the documents are accepted, and demands beyond the host's resources.
	Warnings []string `json:"warnings,omitempty"`
}

// MaxDocuments bounds the JSON of the documents of an apply, in bytes.
const MaxDocuments = 16 << 20

// Document is a declaration in a request: its name (file stem) and its text.
type Document struct {
	Name    string `json:"name"`
	Content string `json:"content"`
	// Path is the file's absolute path, or empty for standard input.
	Path string `json:"path,omitempty"`
}

// ApplyRequest requests a plan (DryRun) or an apply of documents.
type ApplyRequest struct {
	Documents []Document `json:"documents"`
	Allow     []string   `json:"allow,omitempty"` // restart, recreate, destroy
	// Folders are the absolute paths of folders whose declaration files are all
	// among the documents. Declarations that were applied from other files of
	// these folders are no longer declared.
	Folders []string `json:"folders,omitempty"`
	// Replace lets a document replace a declaration of the same name that was
	// applied from another path.
	Replace bool `json:"replace,omitempty"`
	// Confirm is a duration, e.g. 5m. A change of the host's own network is undone
	// unless the user confirms the change in that time.
	Confirm string `json:"confirm,omitempty"`
	DryRun  bool   `json:"dry-run,omitempty"`
}

// Event is a row of `hostler events`.
type Event struct {
	Seq     int64     `json:"seq"`
	Time    time.Time `json:"time"`
	Object  string    `json:"object"` // KIND/NAME
	Level   string    `json:"level"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	// After a failure, Attempt is the number of the next retry. There are at most
	// Limit retries. NextRetry is the time of the next retry. If Attempt is 0, no
	// counted retry follows.
	Attempt   int        `json:"attempt,omitempty"`
	Limit     int        `json:"limit,omitempty"`
	NextRetry *time.Time `json:"next-retry,omitempty"`
}

// TypeStatus is the row of a container type in Status.
type TypeStatus struct {
	Type      string     `json:"type"`
	State     string     `json:"state"` // absent waiting initialising ready error
	Message   string     `json:"message"`
	Supported *bool      `json:"supported"`
	Attempts  int        `json:"attempts"`
	NextRetry *time.Time `json:"next-retry"`
}

// Worker is the row of a worker in Status.
type Worker struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // running stopped failed masked elsewhere
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Passes  int64     `json:"passes"`
}

// Status is the answer of `hostler status`.
type Status struct {
	Version   string         `json:"version"`
	Namespace string         `json:"namespace"`
	Started   time.Time      `json:"started"`
	Harvest   string         `json:"harvest"`
	Types     []TypeStatus   `json:"types"`
	Workers   []Worker       `json:"workers"`
	Machines  map[string]int `json:"machines"` // by status
	// Drifted names the machines that differ from their declarations.
	Drifted []string          `json:"drifted"`
	Unknown []UnknownInstance `json:"unknown"`
	// Moved instances are never deleted.
	Moved []MovedInstance `json:"moved"`
	// UnknownStorage is data with our stamp and no record, e.g. of retained
	// volumes.
	UnknownStorage []UnknownStorage `json:"unknown-storage"`
	Locks          []Lock           `json:"locks"`
	Disk           []Disk           `json:"disk"`
	// Guard is a change of the host's own network that is not kept yet.
	Guard *Guarded `json:"guard,omitempty"`
	// Notices are important facts for the user, e.g. a rebuilt store, a rejected
	// conf.d file or a pending restart.
	Notices []string `json:"notices"`
	// Held says which removals wait for the user's consent, or is empty.
	Held string `json:"held,omitempty"`
	// Copied says why the store may be another host's, or is empty. The agent then
	// deletes nothing.
	Copied string `json:"copied,omitempty"`
}

// UnknownInstance is an instance with our stamp and no record.
type UnknownInstance struct {
	Type string `json:"type"`
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// MovedInstance is an instance with our stamp that was made for a machine of
// another container type, e.g. a container that was imported from LXD into Incus.
type MovedInstance struct {
	Type   string `json:"type"` // of the hypervisor that has the instance
	Name   string `json:"name"`
	UID    string `json:"uid"`
	MadeAs string `json:"made-as"` // the machine's type
}

// UnknownStorage is a volume or filesystem with our stamp and no record.
type UnknownStorage struct {
	Kind     string `json:"kind"` // volume or filesystem
	Name     string `json:"name"`
	Provider string `json:"provider"`
	Size     int64  `json:"size"` // bytes
	// Path is the place of a volume's data.
	Path string `json:"path"`
	// Device is the attached device, empty if it is not attached.
	Device string `json:"device"`
	UID    string `json:"uid"`
}

// Lock is a lock that is held.
type Lock struct {
	Name    string    `json:"name"`
	Holder  string    `json:"holder"`
	Purpose string    `json:"purpose"`
	Since   time.Time `json:"since"`
	// Waiting are the purposes for which the agent waits for the lock.
	Waiting []string `json:"waiting,omitempty"`
}

// Disk is the space of a directory that the agent depends on, in bytes.
type Disk struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Used and Free do not include the blocks reserved for root, as in df. Their
	// sum is therefore less than Size.
	Used int64 `json:"used"`
	Free int64 `json:"free"`
	// Promised is the space that sparse volumes may still occupy.
	Promised int64 `json:"promised,omitempty"`
}

// Check is a finding of `hostler doctor`.
type Check struct {
	Name string `json:"name"`
	// Result is ok, warning or error.
	Result  string `json:"result"`
	Message string `json:"message"`
	// Mend tells the user how to resolve the finding; empty if Result is ok.
	Mend string `json:"mend,omitempty"`
}

// Image is a row of `hostler image list`.
type Image struct {
	Reference string    `json:"reference"`
	Digest    string    `json:"digest"` // sha256, hex
	Format    string    `json:"format"`
	Size      int64     `json:"size"` // bytes
	Created   time.Time `json:"created"`
	UsedBy    []string  `json:"used-by"`
	// Where is "cache", or the container type whose hypervisor holds the image.
	Where string `json:"where"`
}

// AvailableImage is an image that can be built on the host.
type AvailableImage struct {
	Reference string   `json:"reference"`
	Types     []string `json:"types"` // container types that it can be built for
	// From is the mirror of the image's packages. Problem is the reason why there
	// is no mirror.
	From    string `json:"from"`
	Problem string `json:"problem,omitempty"`
}

// Object is the answer of `hostler show`.
type Object struct {
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	UID        string          `json:"uid"`
	Revision   int64           `json:"revision"`
	Generation int64           `json:"generation"`
	Life       string          `json:"life"`
	Spec       json.RawMessage `json:"spec"`
	Status     json.RawMessage `json:"status"`
	Created    time.Time       `json:"created"`
	Updated    time.Time       `json:"updated"`
	Events     []Event         `json:"events"`
}
