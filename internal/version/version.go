// Package version holds the version of hostler.
package version

// Version is set by the linker; a plain go build keeps "dev".
var Version = "dev"
