package spec

// StorageFailure is the failure of an action on a volume or filesystem. It is
// kept by the action's name while the status shows another action's failure.
type StorageFailure struct {
	Condition Condition `json:"condition"`
	Attempts  Attempts  `json:"retry"`
}
