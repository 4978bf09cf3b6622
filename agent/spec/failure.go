package spec

// StorageFailure is the failure of one action of a volume or filesystem, kept
// by the action's name while the status tells of another one's.
type StorageFailure struct {
	Condition Condition `json:"condition"`
	Attempts  Attempts  `json:"retry"`
}
