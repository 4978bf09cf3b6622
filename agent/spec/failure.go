package spec

// StorageFailure is the failure of one action on a volume or filesystem. The
// status itself shows one failure. If several actions fail, the map
// StorageStatus.Others holds the other failures, by the names of the actions.
type StorageFailure struct {
	Condition Condition `json:"condition"`
	Attempts  Attempts  `json:"retry"`
}
