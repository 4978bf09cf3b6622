package cli

import (
	"fmt"
	"strings"
	"testing"

	"hostler/agent/client"
)

// The documents of a request share a size limit.
func TestDocumentsShareASizeLimit(t *testing.T) {
	var docs []client.Document
	for i := range 64 {
		docs = append(docs, client.Document{Name: fmt.Sprint("d", i), Content: strings.Repeat("#", maxDocument)})
	}
	if err := checkTogether(docs[:63]); err != nil {
		t.Error(err)
	}
	if err := checkTogether(docs); err == nil || !strings.Contains(err.Error(), "64 files make a request of 16MiB, and a request has at most 16MiB") {
		t.Error(err)
	}
}
