package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"hostler/agent/client"
	"hostler/agent/spec"
	"hostler/agent/state"
)

// malformed are bodies that are invalid for every route.
var malformed = map[string]string{
	"nothing":            " ",
	"text":               "apply this, please",
	"half an object":     `{"documents":[`,
	"half a string":      `{"documents":"`,
	"two values":         `{} {}`,
	"trailing":           `{}x`,
	"an array":           `[]`,
	"a number":           `7`,
	"a huge number":      `1e999999`,
	"null":               `null`,
	"a string":           `"x"`,
	"unknown field":      `{"unknown-field":1}`,
	"duplicate key":      `{"documents":[],"documents":[]}`,
	"duplicate, nested":  `{"documents":[{"name":"a","name":"b","content":""}]}`,
	"wrong types":        `{"documents":"x","objects":7,"action":[],"object":{},"type":1,"instance":2,"mode":3,"path":4,"reference":5,"command":6}`,
	"nulls":              `{"documents":null,"objects":null,"action":null,"object":null,"type":null,"instance":null,"mode":null,"path":null,"reference":null,"command":null}`,
	"deep":               strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500),
	"deep array":         strings.Repeat(`[`, 100000),
	"control characters": "{\"documents\x00\":1}",
	"not UTF-8":          "{\"object\":\"\xff\xfe\"}",
	"byte order mark":    "\ufeff{}",
	"comment":            `{/* hello */}`,
	"single quotes":      `{'object':'machine/web'}`,
	"NaN":                `{"object":NaN}`,
	"yaml":               "documents:\n- name: x\n",
}

func mutations(b *bench) []route {
	var rows []route
	for _, rt := range b.table() {
		if rt.method != http.MethodGet && !strings.HasPrefix(rt.path, "/v1/worker/") {
			rows = append(rows, rt)
		}
	}
	return rows
}

// takesNoBody are routes whose request has no body.
var takesNoBody = map[string]bool{"/v1/adopt-host": true, "/v1/machines/{name}/release": true}

// Attack: API
func TestMalformedBodiesAreTheClientsFault(t *testing.T) {
	b := newBench(t)
	b.machine("web", state.Alive, lxdMachine("web"), running("web"))
	for _, rt := range mutations(b) {
		if takesNoBody[rt.path] {
			continue
		}
		target := strings.ReplaceAll(rt.path, "{name}", "web")
		for name, body := range malformed {
			w := b.as(peer(0, 0), rt.method, target, "application/json", body)
			var p client.Problem
			err := json.Unmarshal(w.Body.Bytes(), &p)
			if w.Code < 400 || w.Code >= 500 || err != nil || p.Kind == "" || p.Status != w.Code || w.Header().Get("Content-Type") != client.ProblemType {
				t.Errorf("%s %s, %s: %d %s %.200s", rt.method, rt.path, name, w.Code, w.Header().Get("Content-Type"), w.Body)
			}
		}
		for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/yaml", ";"} {
			if w := b.as(peer(0, 0), rt.method, target, contentType, `{}`); w.Code != http.StatusUnsupportedMediaType {
				t.Errorf("%s %s with %q: %d", rt.method, rt.path, contentType, w.Code)
			}
		}
		huge := `{"object":"` + strings.Repeat("x", maxApplyBody) + `"}`
		if w := b.as(peer(0, 0), rt.method, target, "application/json", huge); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s %s, too large: %d", rt.method, rt.path, w.Code)
		}
	}
	if strings.Contains(b.log.String(), "level=ERROR") {
		t.Errorf("the log has errors:\n%s", b.log)
	}
}

// Keys are compared exactly: otherwise a key in another case would be a
// duplicate, and the last of the two would count.
func TestKeysOfAnotherCaseAreRefused(t *testing.T) {
	b := newBench(t)
	b.machine("web", state.Alive, lxdMachine("web"), running("web"))
	for _, c := range []struct{ method, path, body, names string }{
		{"POST", "/v1/plan", `{"documents":[{"name":"a","content":""}],"Documents":[{"name":"b","content":""}]}`, "Documents"},
		{"POST", "/v1/apply", `{"documents":[{"name":"a","Content":"version: 1","content":"version: 1"}]}`, "Content"},
		{"PUT", "/v1/harvest", `{"Mode":"none"}`, "Mode"},
		{"POST", "/v1/retry", `{"object":"machine/web","FORCE":true}`, "FORCE"},
		{"POST", "/v1/machines/web/power", `{"action":"stop","Action":"start"}`, "Action"},
		{"POST", "/v1/machines/web/exec", `{"command":["true"],"Command":["false"],"env":{"path":"1","PATH":"2"}}`, "Command"},
		{"POST", "/v1/images/build", `{"Reference":"debian/12"}`, "Reference"},
		{"POST", "/v1/worker/lxd/get", `{"IDs":[]}`, "IDs"},
	} {
		w := b.asRoot(c.method, c.path, c.body)
		if w.Code < 400 || w.Code >= 500 || w.Header().Get("Content-Type") != client.ProblemType || !strings.Contains(w.Body.String(), c.names) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, w.Code, w.Body)
		}
	}
	if mode := b.asRoot("GET", "/v1/harvest", "").Body.String(); !strings.Contains(mode, `"override":""`) {
		t.Errorf("the harvest mode was set: %s", mode)
	}
	if w := b.asRoot("PUT", "/v1/harvest", `{"mode":"none"}`); w.Code != http.StatusOK {
		t.Errorf("the key as it is written: %d %s", w.Code, w.Body)
	}
}

// Attack: API
func TestBodiesHaveTheBoundOfTheirRoute(t *testing.T) {
	b := newBench(t)
	fits := func(n int) string { return `{"x":"` + strings.Repeat("x", n-8) + `"}` }
	for _, c := range []struct {
		path string
		size int
		want int
	}{
		{"/v1/retry", maxBody, 422},
		{"/v1/retry", maxBody + 1, 413},
		{"/v1/apply", maxApplyBody, 422},
		{"/v1/apply", maxApplyBody + 1, 413},
	} {
		if w := b.asRoot("POST", c.path, fits(c.size)); w.Code != c.want {
			t.Errorf("%s with %d bytes: %d, want %d", c.path, c.size, w.Code, c.want)
		}
	}
	if w := b.asRoot("GET", "/v1/version", `{}`); w.Code != 400 {
		t.Errorf("GET with a body: %d", w.Code)
	}
}

func TestPathsAndQueries(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		method, target string
		want           int
	}{
		{"GET", "/v1/version", 200},
		{"GET", "/v1/version?x=1", 422},
		{"GET", "/v1/version/", 404},
		{"GET", "//v1/version", 404},
		{"GET", "/v1/../v1/version", 404},
		{"GET", "/", 404},
		{"GET", "/v2/version", 404},
		{"DELETE", "/v1/version", 405},
		{"BREW", "/v1/version", 405},
		{"HEAD", "/v1/version", 405},
		{"GET", "/v1/apply", 405},
		{"GET", "/v1/events?after=-1", 422},
		{"GET", "/v1/events?after=x", 422},
		{"GET", "/v1/events?limit=99999999", 422},
		{"GET", "/v1/watch/events?after=x", 400},
		{"GET", "/v1/watch/rows?kind=machines&names=x", 400},
		{"GET", "/v1/machines?name=absent", 404},
		{"GET", "/v1/objects/machine/absent", 404},
		{"GET", "/v1/objects/machine/%2e%2e%2fetc", 404},
		{"GET", "/v1/machines/absent/log", 404},
		{"GET", "/metrics", 200},
		{"GET", "/openapi.json", 200},
	} {
		w := b.asRoot(c.method, c.target, "")
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.target, w.Code, c.want, w.Body)
		}
		if w.Code >= 400 && w.Header().Get("Content-Type") != client.ProblemType {
			t.Errorf("%s %s: content type %s", c.method, c.target, w.Header().Get("Content-Type"))
		}
	}
}

func TestTheOpenAPIDocumentHasEveryRoute(t *testing.T) {
	b := newBench(t)
	var doc struct {
		OpenAPI string                                `json:"openapi"`
		Paths   map[string]map[string]json.RawMessage `json:"paths"`

		Components struct {
			Schemas map[string]struct {
				Properties struct{ Type struct{ Enum []string } }
			}
		}
	}
	if err := json.Unmarshal(b.asRoot("GET", "/openapi.json", "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("OpenAPI %s, want 3.1", doc.OpenAPI)
	}
	for _, rt := range b.table() {
		if doc.Paths[rt.path][strings.ToLower(rt.method)] == nil {
			t.Errorf("the document lacks %s %s", rt.method, rt.path)
		}
	}
	for request, want := range map[string][]string{"AdoptRequest": spec.TypeNames(), "ImageBuildRequest": spec.TypeNames()} {
		if got := doc.Components.Schemas[request].Properties.Type.Enum; !slices.Equal(got, want) {
			t.Errorf("%s takes the types %v, want %v", request, got, want)
		}
	}
	w := b.asRoot("POST", "/v1/adopt", `{"type":"xyz","instance":"web"}`)
	if w.Code != 422 || !strings.Contains(w.Body.String(), "lxd, incus, kvm, lxc") {
		t.Errorf("an unknown type: %d %s", w.Code, w.Body)
	}
}

// FuzzBody sends arbitrary bodies to every route that takes a body: the answer
// is never a server error.
func FuzzBody(f *testing.F) {
	b := newBench(f)
	b.machine("web", state.Alive, lxdMachine("web"), spec.MachineStatus{})
	rows := mutations(b)
	for i := range rows {
		for _, body := range malformed {
			if len(body) < 1000 {
				f.Add(uint8(i), "application/json", body)
			}
		}
		f.Add(uint8(i), "application/json", `{"documents":[{"name":"web","content":"version: 1\nmachines: {web: {type: lxd, image: debian/12}}"}],"allow":["restart"]}`)
		f.Add(uint8(i), "application/json", `{"objects":["machine/web","declaration/web"]}`)
		f.Add(uint8(i), "application/json; charset=utf-8", `{"action":"stop"}`)
		f.Add(uint8(i), "application/json", `{"object":"machine/web"}`)
		f.Add(uint8(i), "application/json", `{"type":"lxd","instance":"web"}`)
		f.Add(uint8(i), "application/json", `{"mode":"all"}`)
		f.Add(uint8(i), "application/json", `{"path":"/x","reference":"y"}`)
		f.Add(uint8(i), "application/json", `{"command":["true"]}`)
	}
	f.Fuzz(func(t *testing.T, n uint8, contentType, body string) {
		rt := rows[int(n)%len(rows)]
		w := b.as(peer(0, 0), rt.method, strings.ReplaceAll(rt.path, "{name}", "web"), contentType, body)
		if w.Code >= 500 {
			t.Fatalf("%s %s: %d %s", rt.method, rt.path, w.Code, w.Body)
		}
	})
}
