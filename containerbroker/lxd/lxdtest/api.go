package lxdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"hostler/internal/hosttest"
)

// answer is the common form of LXD's answers.
type answer struct {
	Type      string          `json:"type"`
	Operation string          `json:"operation"`
	Error     string          `json:"error"`
	Metadata  json.RawMessage `json:"metadata"`
}

// Operation is a finished operation of LXD.
type Operation struct {
	StatusCode int            `json:"status_code"`
	Err        string         `json:"err"`
	Metadata   map[string]any `json:"metadata"`
}

// Refusal is an error that LXD answered.
type Refusal struct {
	Status  int // the HTTP status
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// API sends a request to the server's own socket and decodes the answer's
// metadata into target, unless target is nil. If the request starts an
// operation, API waits for its end, and target must be nil or an *Operation.
func (s *Server) API(method, path string, body, target any) error {
	return s.api(method, path, body, target)
}

func (s *Server) must(method, path string, body any) {
	s.t.Helper()
	check(s.t, method+" "+path, s.api(method, path, body, nil))
}

func (s *Server) api(method, path string, body, target any) error {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://lxd"+path, &content)
	if err != nil {
		return err
	}
	return s.do(req, target)
}

func (s *Server) do(req *http.Request, target any) error {
	resp, err := s.client().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var got answer
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return err
	}
	switch got.Type {
	case "error":
		return &Refusal{resp.StatusCode, got.Error}
	case "async":
		var op Operation
		if err := s.api(http.MethodGet, got.Operation+"/wait?timeout=60", nil, &op); err != nil {
			return err
		}
		if op.StatusCode != http.StatusOK {
			return errors.New("the operation failed: " + op.Err)
		}
		if target, ok := target.(*Operation); ok {
			*target = op
		}
		return nil
	case "sync":
		if target == nil {
			return nil
		}
		return json.Unmarshal(got.Metadata, target)
	}
	return fmt.Errorf("answer of type %q", got.Type)
}

func (s *Server) client() *http.Client {
	client := hosttest.Client(s.Socket)
	client.Timeout = 2 * waitLimit
	return client
}
