package state

// Commits counts the transactions since the store was opened.
func (l *Local) Commits() int64 { return l.commits.Load() }

// Dir is the directory of the store.
func (l *Local) Dir() string { return l.files.dir }

// RelaxedTime is the longest time until a relaxed change is durable.
const RelaxedTime = relaxedTime
