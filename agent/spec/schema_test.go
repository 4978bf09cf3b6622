package spec

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("declaration.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("declaration.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func loadYAML(t *testing.T, file string) any {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Unmarshal(content, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d examples, %v", len(files), err)
	}
	return files
}

// Every example is valid for Parse and for the schema, and survives encoding.
func TestExamples(t *testing.T) {
	schema := compileSchema(t)
	for _, file := range examples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if err := schema.Validate(loadYAML(t, file)); err != nil {
				t.Error(err)
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d, err := Parse(file, content)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse("again", EncodeYAML(d))
			if err != nil || !reflect.DeepEqual(d, again) {
				t.Errorf("read back as %+v, %v", again, err)
			}
		})
	}
}

// The schema refuses faults in single values too, so that editors show them.
func TestSchemaRefusesBadDeclarations(t *testing.T) {
	schema := compileSchema(t)
	for name := range strings.FieldsSeq(`
		unknown-key unknown-machine-key unknown-nested-key underscore-key wrong-case
		version-missing version-unsupported version-text name-bad name-long name-number
		machines-list machine-text machine-empty machine-name keys-text list-at-top
		cpus-text cpus-float cpus-negative cpus-zero cpus-many value-missing
		size-plain size-megabytes size-fraction size-words size-negative size-list
		type-missing type-unknown image-colon image-bare image-file-no-digest image-https-no-digest
		image-http image-digest-short image-digest-upper image-digest-md5 image-relative image-number
		bridge-missing bridge-long bridge-bad address-no-prefix address-bad mtu-small
		nic-no-prefix nic-name nic-no-network publish-bad volume-bad filesystem-type
		user-data-form user-data-empty user-data-map ssh-key-lines`) {
		if err := schema.Validate(loadYAML(t, "testdata/bad/"+name+".yaml")); err == nil {
			t.Errorf("the schema accepts %s.yaml", name)
		}
	}
}

// The schema describes every field of the declared types and of the host's
// configuration, and no other field.
func TestSchemaDescribesEveryField(t *testing.T) {
	for root, described := range map[reflect.Type]map[string]fieldSchema{
		reflect.TypeFor[Declaration](): declarationSchema, reflect.TypeFor[Config](): configSchema,
	} {
		fields := map[string]bool{}
		var walk func(reflect.Type)
		walk = func(ty reflect.Type) {
			switch ty.Kind() {
			case reflect.Map, reflect.Slice, reflect.Pointer:
				walk(ty.Elem())
			case reflect.Struct:
				for key, i := range structFields(ty) {
					fields[ty.Name()+"."+key] = true
					walk(ty.Field(i).Type)
				}
			}
		}
		walk(root)
		for name := range fields {
			if described[name].description == "" {
				t.Errorf("%s is not described", name)
			}
		}
		for name := range described {
			if !fields[name] {
				t.Errorf("%s is described and does not exist", name)
			}
		}
	}
}

// The fields for the manual pages have the key's path, its accepted values and
// its default.
func TestFields(t *testing.T) {
	all := map[string]Field{}
	for _, f := range append(DeclarationFields(), ConfigFields()...) {
		if f.Description == "" || f.Value == "" {
			t.Errorf("%+v", f)
		}
		f.Description = ""
		all[f.Path] = f
	}
	for _, want := range []Field{
		{Path: "version", Value: "1", Required: true},
		{Path: "machines.NAME.cpus", Value: "1 to 4096"},
		{Path: "machines.NAME.storage[].read-only", Value: "true | false", Default: "false"},
		{Path: "machines.NAME.networks.NAME.address", Value: "text"},
		{Path: "volumes.NAME.size", Value: "size", Required: true},
		{Path: "harvest", Value: "none | unknown | destroyed | all", Default: "destroyed"},
		{Path: "retry-delay", Value: "duration", Default: "10s"},
		{Path: "types.lxd.mtu", Value: "number", Default: "1500"},
		{Path: "images.sources", Value: "list of text", Default: "[local, build]"},
	} {
		if got := all[want.Path]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
