package cli

import (
	"hostler/agent/client"
	"hostler/agent/spec"
)

// declarationName returns the name that the document's declaration gets when it
// is applied.
func declarationName(d client.Document) (string, error) {
	decl, _, err := spec.ParseAlone(d.Name, []byte(d.Content))
	if err != nil {
		return "", err
	}
	if decl.Name != "" {
		return decl.Name, nil
	}
	return d.Name, nil
}
