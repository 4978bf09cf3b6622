package spec

import (
	"slices"
	"strings"
	"time"

	"hostler/internal/fault"
)

// MigrationPhase is the progress of a migration.
type MigrationPhase string

// The phases. Until MigrationMoved the machine's record has the old type.
const (
	MigrationWaiting MigrationPhase = "waiting"
	MigrationMoving  MigrationPhase = "moving" // the provisioners leave the machine alone
	MigrationMoved   MigrationPhase = "moved"  // the old instance is kept until the new instance is usable
	MigrationDone    MigrationPhase = "done"
	MigrationFailed  MigrationPhase = "failed" // the machine stays as it was
)

// Migration is the move of a machine's instance to another container type.
type Migration struct {
	From  ContainerType  `json:"from"`
	To    ContainerType  `json:"to"`
	Phase MigrationPhase `json:"phase"`
	// Began is the time of the last attempt to copy the instance. It is zero before
	// the first.
	Began time.Time `json:"began"`
	// Waits says what a waiting migration waits for, or is empty.
	Waits string `json:"waits,omitempty"`
	// Error is the cause of MigrationFailed.
	Error string `json:"error,omitempty"`
}

// CheckImage refuses the move of a machine whose image only the old type can
// use. A document may name another image until the machine has its new type.
func (m *Migration) CheckImage(image string) error {
	if !strings.HasPrefix(image, string(m.From)+":") {
		return nil
	}
	return fault.New(fault.NeedsOperator, "its image %s is in the own store of %s: declare it with an image that both types can use, e.g. debian/12", image, m.From)
}

// LastAttempt returns the time of the last attempt to copy the instance, or zero.
func (m *Migration) LastAttempt() time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.Began
}

// Open reports whether the migration goes on.
func (m *Migration) Open() bool {
	return m != nil && (m.Phase == MigrationWaiting || m.Moving() || m.Moved())
}

// Moving reports whether the machine's instance is being copied.
func (m *Migration) Moving() bool { return m != nil && m.Phase == MigrationMoving }

// Moved reports whether the new instance is in use and the old instance still
// exists.
func (m *Migration) Moved() bool { return m != nil && m.Phase == MigrationMoved }

// TypeFor returns the type of a machine that a document declares of type t. A
// document that was written before the machine's migration still declares the
// old type.
func (r *MachineRecord) TypeFor(t ContainerType) ContainerType {
	if m := r.Migration; m != nil && t == m.From && r.Machine.Type == m.To {
		return m.To
	}
	return t
}

// Needs reports whether the machine needs the container type, now or after its
// migration.
func (r *MachineRecord) Needs(t ContainerType) bool {
	return r.Machine.Type == t || r.Migration.Open() && r.Migration.To == t
}

// CheckMigration refuses a migration between types that cannot take over each
// other's instances.
func CheckMigration(from, to ContainerType) error {
	if info, known := from.Info(); known && to != "" && info.MovesTo == to {
		return nil
	}
	moves := slices.DeleteFunc(slices.Clone(containerTypes), func(i TypeInfo) bool { return i.MovesTo == "" })[0]
	return fault.New(fault.Invalid, "cannot migrate machines from %s to %s, only from %s to %s", fault.Clip(string(from), 16), fault.Clip(string(to), 16), moves.Type, moves.MovesTo)
}
