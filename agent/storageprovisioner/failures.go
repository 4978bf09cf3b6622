package storageprovisioner

import (
	"maps"
	"slices"

	"hostler/agent/spec"
)

// Several actions of one entity may fail at the same time. The status tells of
// the latest failure; the others are kept beside it, so that each action has
// the schedule of its own attempts.

// failedAction is what the entity's recorded failure is of; "" when there is
// none.
func failedAction(s spec.StorageStatus) Action {
	if s.Attempts.ErrorKind == "" {
		return ""
	}
	for _, c := range s.Conditions {
		if c.Type == conditionFailed && c.Status {
			return Action(c.Reason)
		}
	}
	return ""
}

// attemptsOf are those of an action, and whether it is failing.
func attemptsOf(s spec.StorageStatus, a Action) (spec.Attempts, bool) {
	if failedAction(s) == a {
		return s.Attempts, true
	}
	other, failing := s.Others[string(a)]
	return other.Attempts, failing
}

// turnTo makes room for another action's failure, and goes on with that one's
// attempts.
func turnTo(s *spec.StorageStatus, a Action) {
	attempts, _ := attemptsOf(*s, a)
	others := maps.Clone(s.Others)
	if failed := failedAction(*s); failed != "" && failed != a {
		if others == nil {
			others = map[string]spec.StorageFailure{}
		}
		at := slices.IndexFunc(s.Conditions, func(c spec.Condition) bool { return c.Type == conditionFailed })
		others[string(failed)] = spec.StorageFailure{Condition: s.Conditions[at], Attempts: s.Attempts}
	}
	delete(others, string(a))
	s.Others, s.Attempts = others, attempts
}

// forget drops failures of what is not planned any more. When that is so of
// the one that is told, another is told.
func forget(s *spec.StorageStatus, planned func(Action) bool) {
	s.Others = maps.Clone(s.Others)
	maps.DeleteFunc(s.Others, func(a string, _ spec.StorageFailure) bool { return !planned(Action(a)) })
	if failed := failedAction(*s); failed != "" && !planned(failed) {
		s.Attempts = spec.Attempts{}
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c spec.Condition) bool { return c.Type == conditionFailed })
	}
	if failedAction(*s) == "" && len(s.Others) > 0 {
		next := slices.Min(slices.Collect(maps.Keys(s.Others)))
		s.Attempts, s.Conditions = s.Others[next].Attempts, append(s.Conditions, s.Others[next].Condition)
		delete(s.Others, next)
	}
}
