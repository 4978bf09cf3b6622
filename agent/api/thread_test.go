package api

import (
	"encoding/json"
	"net/http"

	"hostler/agent/client"
	"hostler/agent/state"
)

func id(kind, name string) state.ID { return state.ID{Kind: kind, Name: name} }

func readProblem(resp *http.Response) (p client.Problem, err error) {
	return p, json.NewDecoder(resp.Body).Decode(&p)
}
