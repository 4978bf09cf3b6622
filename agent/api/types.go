// Package api is the agent's HTTP interface on its unix socket: the route
// table with the rights each needs, the server and the client. types.go holds
// what is sent; the JSON of these types is part of the contract.
package api

import (
	"encoding/json"
	"time"

	"hostler/agent/spec"
)

// Machine is one row of `hostler get machines -o json`. Times RFC 3339.
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
	// Observed says that the status speaks of this generation.
	Observed   bool             `json:"observed"`
	Percent    *int             `json:"percent,omitempty"`
	Hardware   *spec.Hardware   `json:"hardware,omitempty"`
	Conditions []spec.Condition `json:"conditions"`
}

// Declaration is one row of `hostler get declarations -o json`.
type Declaration struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	// Problem says why the file's present text is not in force; empty: it is.
	Problem    string    `json:"problem,omitempty"`
	Objects    []string  `json:"objects"` // KIND/NAME, sorted
	Created    time.Time `json:"created"`
	Updated    time.Time `json:"updated"`
	Generation int64     `json:"generation"`
}

// Step is one step of a plan.
type Step struct {
	// Object is KIND/NAME.
	Object string `json:"object"`
	// Action is create, start, stop, restart, update, delete, adopt, release,
	// forget, recreate, attach, detach, initialise, conflict, or none.
	Action string `json:"action"`
	Impact string `json:"impact"`
	// Detail is a sentence for people; Changes names the fields.
	Detail  string   `json:"detail"`
	Changes []Change `json:"changes,omitempty"`
	// Held names what is missing before the step is done: "--allow restart",
	// or the reason the step is not supported by this agent.
	Held string `json:"held,omitempty"`
}

// Change is one field of a step.
type Change struct {
	Field  string `json:"field"`
	From   string `json:"from"`
	To     string `json:"to"`
	Impact string `json:"impact"`
	Reason string `json:"reason,omitempty"`
}

// Plan answers plan and apply.
type Plan struct {
	Steps []Step `json:"steps"`
	// Machines that the documents declare, for following an apply.
	Machines []string `json:"machines"`
	// Objects are the networks, volumes and filesystems (KIND/NAME) that the
	// documents declare, for following too.
	Objects []string `json:"objects,omitempty"`
	// Removed objects (KIND/NAME) that the documents no longer declare.
	Removed []string `json:"removed"`
	// Awaited objects (KIND/NAME) are still being removed, and are made again
	// once they are gone.
	Awaited []string `json:"awaited,omitempty"`
	// Gone are the declarations that were applied from files which the folder
	// of the request no longer holds.
	Gone []string `json:"gone,omitempty"`
	// Unsupported says for each declared thing that this agent cannot carry
	// out yet what it is; apply refuses when there is any.
	Unsupported []string `json:"unsupported,omitempty"`
	// Warnings say what will fail a moment after it was accepted, or is more
	// than the host has: KIND/NAME: TEXT.
	Warnings []string `json:"warnings,omitempty"`
}

// Document is one declaration as sent: its name (file stem) and its text.
type Document struct {
	Name    string `json:"name"`
	Content string `json:"content"`
	// Path is the file's absolute path; empty: standard input.
	Path string `json:"path,omitempty"`
}

// ApplyRequest asks for a plan (DryRun) or an apply of documents.
type ApplyRequest struct {
	Documents []Document `json:"documents"`
	Allow     []string   `json:"allow,omitempty"` // restart, recreate, destroy
	// Folders are the absolute paths of folders whose declaration files are all
	// among the documents: what was applied from other files of them is
	// declared no more.
	Folders []string `json:"folders,omitempty"`
	// Replace lets a document take the place of one that was applied under its
	// name from another path.
	Replace bool `json:"replace,omitempty"`
	// Confirm is a duration, like 5m: a change of the host's own network is
	// undone unless somebody confirms it in that time.
	Confirm string `json:"confirm,omitempty"`
	DryRun  bool   `json:"dry-run,omitempty"`
}

// Event is one row of `hostler events`.
type Event struct {
	Seq     int64     `json:"seq"`
	Time    time.Time `json:"time"`
	Object  string    `json:"object"` // KIND/NAME
	Level   string    `json:"level"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// TypeStatus is one container type in Status.
type TypeStatus struct {
	Type      string     `json:"type"`
	State     string     `json:"state"` // absent waiting initialising ready error
	Message   string     `json:"message"`
	Supported *bool      `json:"supported"`
	Attempts  int        `json:"attempts"`
	NextRetry *time.Time `json:"next-retry"`
}

// Worker is one worker in Status.
type Worker struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // running stopped failed masked elsewhere
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Passes  int64     `json:"passes"`
}

// Status is the host at a glance.
type Status struct {
	Version   string         `json:"version"`
	Namespace string         `json:"namespace"`
	Started   time.Time      `json:"started"`
	Harvest   string         `json:"harvest"`
	Types     []TypeStatus   `json:"types"`
	Workers   []Worker       `json:"workers"`
	Machines  map[string]int `json:"machines"` // by status
	// Drifted names the machines that differ from what is declared.
	Drifted []string          `json:"drifted"`
	Unknown []UnknownInstance `json:"unknown"`
	// UnknownStorage is data with our stamp and no record, such as that of
	// volumes that are retained.
	UnknownStorage []UnknownStorage `json:"unknown-storage"`
	Locks          []Lock           `json:"locks"`
	Disk           []Disk           `json:"disk"`
	// Guard is a change of the host's own network that is not kept yet.
	Guard *Guarded `json:"guard,omitempty"`
	// Notices are things a person should know: a rebuilt store, a rejected
	// conf.d file, a pending restart.
	Notices []string `json:"notices"`
}

// UnknownInstance is an instance with our stamp and no record.
type UnknownInstance struct {
	Type string `json:"type"`
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// UnknownStorage is a volume or filesystem with our stamp and no record.
type UnknownStorage struct {
	Kind     string `json:"kind"` // volume or filesystem
	Name     string `json:"name"`
	Provider string `json:"provider"`
	Size     int64  `json:"size"` // bytes
	// Path is where a volume's data is.
	Path string `json:"path"`
	// Device is where it is attached, if it is.
	Device string `json:"device"`
	UID    string `json:"uid"`
}

// Lock is a lock that is held.
type Lock struct {
	Name    string    `json:"name"`
	Holder  string    `json:"holder"`
	Purpose string    `json:"purpose"`
	Since   time.Time `json:"since"`
	// Waiting are the purposes for which the agent waits for it.
	Waiting []string `json:"waiting,omitempty"`
}

// Disk is the space of a directory the agent depends on, in bytes.
type Disk struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Used and Free leave out the blocks that are kept for root, as df does:
	// together they are less than Size.
	Used int64 `json:"used"`
	Free int64 `json:"free"`
	// Promised is what sparse volumes may still come to take of it.
	Promised int64 `json:"promised,omitempty"`
}

// Check is one finding of `hostler doctor`.
type Check struct {
	Name string `json:"name"`
	// Result is ok, warning or error.
	Result  string `json:"result"`
	Message string `json:"message"`
	// Mend is what a person can do; empty when ok.
	Mend string `json:"mend,omitempty"`
}

// Image is one row of `hostler image list`.
type Image struct {
	Reference string    `json:"reference"`
	Digest    string    `json:"digest"` // sha256, hex
	Format    string    `json:"format"`
	Size      int64     `json:"size"` // bytes
	Created   time.Time `json:"created"`
	UsedBy    []string  `json:"used-by"`
	// Where is cache or the container type that keeps it.
	Where string `json:"where"`
}

// Object is everything about one thing, for `hostler show`.
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

// Storage is one row of `hostler get volumes` or `filesystems`.
type Storage struct {
	Name     string            `json:"name"`
	Provider string            `json:"provider"`
	Size     int64             `json:"size"` // bytes
	Status   spec.StorageState `json:"status"`
	Device   string            `json:"device"`
	Path     string            `json:"path"`
	// Attachments are those to machines, by name.
	Attachments []Attachment     `json:"attachments"`
	Message     string           `json:"message"`
	Life        string           `json:"life"`
	Attempts    int              `json:"attempts"`
	NextRetry   *time.Time       `json:"next-retry"`
	ErrorKind   string           `json:"error-kind,omitempty"` // of package fault
	Declaration string           `json:"declaration"`
	UID         string           `json:"uid"`
	Observed    bool             `json:"observed"`
	Conditions  []spec.Condition `json:"conditions"`
}

// Attachment is how far a volume or filesystem is attached to a machine.
type Attachment struct {
	Machine  string            `json:"machine"`
	Status   spec.StorageState `json:"status"`
	Source   string            `json:"source"`
	ReadOnly bool              `json:"read-only"`
	Message  string            `json:"message"`
}

// Network is one row of `hostler get networks`.
type Network struct {
	Name      string   `json:"name"`
	Bridge    string   `json:"bridge"`
	Addresses []string `json:"addresses"`
	Status    string   `json:"status"` // pending ready error dying
	Message   string   `json:"message"`
	// Guests are the addresses given, by MACHINE/NIC.
	Guests      map[string][]string `json:"guests"`
	Life        string              `json:"life"`
	Attempts    int                 `json:"attempts"`
	NextRetry   *time.Time          `json:"next-retry"`
	ErrorKind   string              `json:"error-kind,omitempty"`
	Declaration string              `json:"declaration"`
	UID         string              `json:"uid"`
	Observed    bool                `json:"observed"`
	Conditions  []spec.Condition    `json:"conditions"`
}
