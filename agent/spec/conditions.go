package spec

import (
	"slices"
	"time"
)

// Condition is an aspect of an object's state.
type Condition struct {
	Type    string    `json:"type"`
	Status  bool      `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// ConditionUpToDate is true when the host matches the declaration.
const ConditionUpToDate = "UpToDate"

// ReasonHeldBack is the reason of an object that is not up to date because the
// change of a volume or filesystem is held.
const ReasonHeldBack = "HeldBack"

// ReasonNewMachineOnly is the reason of a machine that is not up to date
// although its networks and storage match the declaration. Its user-data
// differs, and only a new instance gets the new user-data.
const ReasonNewMachineOnly = "NewMachineOnly"

// AttachmentsMatch reports whether an instance's networks and storage match the
// declaration.
func AttachmentsMatch(cs []Condition) bool {
	return !slices.ContainsFunc(cs, func(c Condition) bool {
		return c.Type == ConditionUpToDate && !c.Status && c.Reason != ReasonNewMachineOnly
	})
}

// Differs reports whether the conditions show a difference from the
// declaration.
func Differs(cs []Condition) bool {
	return slices.ContainsFunc(cs, func(c Condition) bool { return c.Type == ConditionUpToDate && !c.Status })
}

// ConditionOf returns a type's condition, or the zero value if there is none.
func ConditionOf(cs []Condition, kind string) Condition {
	if i := slices.IndexFunc(cs, func(c Condition) bool { return c.Type == kind }); i >= 0 {
		return cs[i]
	}
	return Condition{}
}

// WithoutCondition returns a copy of the conditions without those of a type.
func WithoutCondition(cs []Condition, kind string) []Condition {
	return slices.DeleteFunc(slices.Clone(cs), func(c Condition) bool { return c.Type == kind })
}

// SetCondition returns the conditions with c in place of the one of the same type. If
// status, reason and message are equal, the old condition stays and keeps its
// Since. It does not modify cs, which others may share.
func SetCondition(cs []Condition, c Condition) []Condition {
	for i := range cs {
		if cs[i].Type != c.Type {
			continue
		}
		if cs[i].Status == c.Status && cs[i].Reason == c.Reason && cs[i].Message == c.Message {
			return cs
		}
		cs = slices.Clone(cs)
		cs[i] = c
		return cs
	}
	return append(slices.Clip(cs), c)
}
