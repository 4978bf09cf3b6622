package storageprovisioner

import (
	"maps"
	"slices"

	"hostler/agent/spec"
)

// Several actions of an entity may be failing at the same time. The status
// shows the latest failure. Its field Others keeps the other failures, so that
// each action has its own retry schedule.

// failedAction returns the action of the shown failure, or "" if there is none.
func failedAction(s spec.StorageStatus) Action {
	if c := spec.ConditionOf(s.Conditions, conditionFailed); s.Attempts.ErrorKind != "" && c.Status {
		return Action(c.Reason)
	}
	return ""
}

// attemptsOf returns the attempts of an action. Their ErrorKind is "" if the
// action is not failing.
func attemptsOf(s spec.StorageStatus, a Action) spec.Attempts {
	if failedAction(s) == a {
		return s.Attempts
	}
	return s.Others[string(a)].Attempts
}

// turnTo prepares the status for a failure of action a. It moves the shown
// failure of another action to Others and restores the earlier attempts of a.
func turnTo(s *spec.StorageStatus, a Action) {
	attempts := attemptsOf(*s, a)
	others := maps.Clone(s.Others)
	if failed := failedAction(*s); failed != "" && failed != a {
		if others == nil {
			others = map[string]spec.StorageFailure{}
		}
		others[string(failed)] = spec.StorageFailure{Condition: spec.ConditionOf(s.Conditions, conditionFailed), Attempts: s.Attempts}
	}
	delete(others, string(a))
	s.Others, s.Attempts = others, attempts
}

// forget drops failures of actions that are no longer planned. If the shown
// failure is dropped, one of Others takes its place.
func forget(s *spec.StorageStatus, planned func(Action) bool) {
	s.Others = maps.Clone(s.Others)
	maps.DeleteFunc(s.Others, func(a string, _ spec.StorageFailure) bool { return !planned(Action(a)) })
	if failed := failedAction(*s); failed != "" && !planned(failed) {
		s.Attempts = spec.Attempts{}
		s.Conditions = spec.WithoutCondition(s.Conditions, conditionFailed)
	}
	if failedAction(*s) == "" && len(s.Others) > 0 {
		next := slices.Min(slices.Collect(maps.Keys(s.Others)))
		s.Attempts, s.Conditions = s.Others[next].Attempts, append(s.Conditions, s.Others[next].Condition)
		delete(s.Others, next)
	}
}
