package declare

// FolderState says whether the files of a folder are in force.
type FolderState struct {
	Path string
	// Read is true if all files were read in their present form.
	Read bool
	// Refused are the files that are not in force, sorted by path.
	Refused []RefusedFile
}

// RefusedFile is a file of a folder, or the folder itself, that is not in force.
type RefusedFile struct {
	Path, Reason string
	// Retried is true if the reason may pass without a change of a document that is
	// there, e.g. when another file declares a missing object.
	Retried bool
}
