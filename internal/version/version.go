// Package version says which hostler this is.
package version

// Version is set by the linker; a plain go build leaves it so.
var Version = "dev"
