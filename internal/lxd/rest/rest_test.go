package rest

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnswersAreBounded(t *testing.T) {
	body := &boundedBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", 100))), left: 64}
	if data, err := io.ReadAll(body); err == nil || len(data) != 64 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// Absent metadata is an error, because it would pass for a host without
// instances.
func TestGetReadsMetadata(t *testing.T) {
	for name, test := range map[string]struct {
		status     int
		body, want string
		fails      string
	}{
		"items":       {200, `{"type":"sync","metadata":["a","b"]}`, "a b", ""},
		"none":        {200, `{"type":"sync","metadata":[]}`, "", ""},
		"null":        {200, `{"type":"sync","metadata":null}`, "", ""},
		"absent":      {200, `{"type":"sync","status":"Success"}`, "", "it has no metadata"},
		"other type":  {200, `{"type":"sync","metadata":{"a":1}}`, "", "unreadable answer to GET /1.0/x"},
		"cut":         {200, `{"type":"sync","metadata":["a",`, "", "unreadable answer to GET /1.0/x"},
		"refusal":     {404, `{"type":"error","error":"Instance not found","metadata":null}`, "", "Instance not found"},
		"error":       {200, `{"type":"error","error":"it is busy"}`, "", "it is busy"},
		"page":        {502, `<html>`, "", "LXD answered 502 Bad Gateway"},
		"redirection": {302, `{"type":"sync","metadata":["a"]}`, "", "LXD answered 302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}), ReadHeaderTimeout: time.Second}
			go func() { _ = server.Serve(listener) }()
			defer server.Close()
			var got []string
			_, err = Open(t.Context(), "LXD", socket, time.Second, time.Second).Get("/1.0/x", &got)
			if test.fails == "" && (err != nil || strings.Join(got, " ") != test.want) {
				t.Errorf("%q, %v", got, err)
			}
			if test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
