package cli

import (
	"hostler/agent/api"
	"hostler/agent/spec"
)

// declarationName is the name under which applying the document would keep
// it.
func declarationName(d api.Document) (string, error) {
	decl, _, err := spec.ParseAlone(d.Name, []byte(d.Content))
	if err != nil {
		return "", err
	}
	if decl.Name != "" {
		return decl.Name, nil
	}
	return d.Name, nil
}
