package rest

import (
	"io"
	"strings"
	"testing"
)

func TestAnswersAreBounded(t *testing.T) {
	body := &boundedBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", 100))), left: 64}
	if data, err := io.ReadAll(body); err == nil || len(data) != 64 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
