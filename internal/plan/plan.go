// Package plan holds the types that all plans have in common, which are the
// impact of a change, a change, and a step as shown to the user. Their JSON is
// part of the API.
package plan

// Impact is the effect of a change on a running instance.
type Impact string

// The impacts, in rising order.
const (
	None     Impact = "none"
	Live     Impact = "live"
	Restart  Impact = "restart"
	Recreate Impact = "recreate"
	Destroy  Impact = "destroy"
)

// Change is a field that differs between the declaration and the host.
type Change struct {
	Field string `json:"field"`
	// From and To are for the user and never hold secrets, e.g. changed user-data
	// reads "(changed)".
	From   string `json:"from"`
	To     string `json:"to"`
	Impact Impact `json:"impact"`
	// Reason says why the impact is more than live.
	Reason string `json:"reason,omitempty"`
	// Stored is true if only the running instance differs, so that its next start
	// makes the change too.
	Stored bool `json:"-"`
}

// Step is a step of a plan.
type Step struct {
	// Object is KIND/NAME.
	Object string `json:"object"`
	// Action is create, start, stop, restart, update, delete, adopt, release,
	// forget, recreate, attach, detach, initialise, conflict, or none.
	Action string `json:"action"`
	Impact Impact `json:"impact"`
	// Detail is a sentence for the user. Changes lists the fields.
	Detail  string   `json:"detail"`
	Changes []Change `json:"changes,omitempty"`
	// Held is the reason why the step waits, or "" if it does not wait. For
	// example, it is "--allow restart" if the user must consent to a restart.
	Held string `json:"held,omitempty"`
	// Allow is the impact that the user must allow to release the step, which is
	// restart, recreate or destroy. It is empty if permission does not release
	// the step.
	Allow Impact `json:"allow,omitempty"`
}

// Worst returns the highest impact among changes.
func Worst(changes []Change) Impact {
	order := map[Impact]int{None: 0, Live: 1, Restart: 2, Recreate: 3, Destroy: 4}
	worst := None
	for _, c := range changes {
		if order[c.Impact] > order[worst] {
			worst = c.Impact
		}
	}
	return worst
}
