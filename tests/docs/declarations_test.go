// Package docs_test compares the documents with the programs.
package docs_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"hostler/agent/spec"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every example, and every declaration that a document shows, is one.
func TestDeclarations(t *testing.T) {
	shown := map[string]string{}
	files, _ := filepath.Glob(root + "/examples/*.yaml")
	if len(files) == 0 {
		t.Error("there are no examples")
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		shown[filepath.Base(file)] = string(b)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	pages, _ := filepath.Glob(root + "/docs/*.md")
	for _, page := range append(pages, root+"/README.md") {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range block.FindAllStringSubmatch(string(b), -1) {
			if strings.HasPrefix(found[1], "#hostler-config") {
				name := strings.ToLower(strings.TrimSuffix(filepath.Base(page), ".md")) + ".yaml"
				shown[name] = found[1]
			}
		}
	}
	if len(shown) <= len(files) {
		t.Error("no document shows a declaration")
	}
	for name, content := range shown {
		if _, err := spec.Parse(name, []byte(content)); err != nil {
			t.Error(err)
		}
	}
}

// The package installs a valid configuration, whose comments show every key with
// its default.
func TestPackagedConfiguration(t *testing.T) {
	content := read(t, "debian/hostler.yaml")
	shown := regexp.MustCompile(`(?m)^#((?:  )?[a-z].*)$`).ReplaceAllString(content, "$1")
	for name, content := range map[string]string{"installed": content, "with its comments": shown} {
		config, warnings, err := spec.ParseConfig("hostler.yaml", []byte(content))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(warnings) > 0 {
			t.Errorf("%s: %v", name, warnings)
		}
		if diff := cmp.Diff(spec.DefaultConfig(), config, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s, it is not what is the default:\n%s", name, diff)
		}
	}
	var said map[string]any
	if err := yaml.Unmarshal([]byte(shown), &said); err != nil {
		t.Fatal(err)
	}
	for _, key := range missing(reflect.TypeFor[spec.Config](), said, "") {
		t.Errorf("the key %s is not shown", key)
	}
}

// missing are the keys of a configuration's type that are not said.
func missing(section reflect.Type, said map[string]any, at string) (keys []string) {
	for field := range section.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		value, there := said[name]
		inner, _ := value.(map[string]any)
		switch {
		case !there:
			keys = append(keys, at+name)
		case field.Type.Kind() == reflect.Struct:
			keys = append(keys, missing(field.Type, inner, at+name+".")...)
		}
	}
	return keys
}

// The documents say that members of the administrators' group are as good as
// root.
func TestDocumentsWarnOfTheAdministratorsGroup(t *testing.T) {
	for _, name := range []string{"README.md", "docs/manual.md", "debian/hostlerd.8"} {
		text := strings.Join(strings.Fields(read(t, name)), " ")
		if !strings.Contains(text, "admin") || !regexp.MustCompile(`as good as (being )?root`).MatchString(text) {
			t.Errorf("%s does not say it", name)
		}
	}
}
