package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"hostler/agent/client"
	"hostler/agent/spec"
)

// parseShown parses the argument of show, which is an object, a container type
// or an image.
func parseShown(s string) (reference, error) {
	word, name, _ := strings.Cut(s, "/")
	if word == spec.KindContainerType && name != "" {
		if !slices.Contains(containerTypes, name) {
			return reference{}, usage("unknown container type %q%s", name, didYouMean(name, containerTypes)).
				hint("types are " + strings.Join(containerTypes, ", "))
		}
		return reference{word, name}, nil
	}
	if kind, err := parseKind(word); err == nil && kind == kindImage && name != "" {
		return reference{kind, name}, nil
	}
	return parseReference(s, slices.Concat(objectKinds, []string{kindImage, spec.KindContainerType})...)
}

// neverNeeded returns the object for a container type of which no machine has
// been declared yet.
func neverNeeded(name string) client.Object {
	return client.Object{
		Kind: spec.KindContainerType, Name: name, Spec: spec.Encode(spec.TypeRecord{}), Events: []client.Event{},
		Status: spec.Encode(spec.TypeStatus{State: "absent", Message: "no machine of this type was declared yet"}),
	}
}

func (s sheet) containerType(o client.Object) {
	var st spec.TypeStatus
	if len(o.Status) > 0 && json.Unmarshal(o.Status, &st) != nil {
		s.yamlSection("Status", o.Status)
		return
	}
	s.title("Status")
	s.sub("State", cmp.Or(st.State, "absent"))
	supported := "not known yet"
	if st.Supported != nil {
		supported = map[bool]string{true: "yes", false: "no"}[*st.Supported]
	}
	s.sub("Supported", supported)
	s.sub("Message", st.Message)
	s.attempts(st.Attempts, o)
	s.conditions(st.Conditions)
}

// shownImage is the JSON form of an image in show.
type shownImage struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Images are the image's rows, one for each store that keeps the image.
	Images []client.Image `json:"images"`
}

// showImage prints an image from every store that keeps it. name is the image's
// reference or the beginning of its digest.
func (a *app) showImage(ctx context.Context, name string) error {
	rows, notices, err := a.agent().Images(ctx)
	if err != nil {
		return err
	}
	a.notices(notices)
	shown := shownImage{Kind: kindImage, Name: name}
	for _, i := range rows {
		if i.Reference == name || len(name) >= shortDigest && strings.HasPrefix(i.Digest, name) {
			shown.Images = append(shown.Images, i)
		}
	}
	if len(shown.Images) == 0 {
		f := imageListing(rows).absent([]string{name})
		f.code = exitError
		return f
	}
	if a.output != outTable {
		return a.document(shown)
	}
	s := sheet{w: a.env.Stdout, now: a.env.Now(), colours: a.colours()}
	s.field("Name", name)
	s.field("Kind", kindImage)
	for _, i := range shown.Images {
		s.title("In " + line(i.Where))
		s.sub("Reference", i.Reference)
		s.sub("Digest", i.Digest)
		s.sub("Format", i.Format)
		s.sub("Size", size(i.Size)+" ("+strconv.FormatInt(i.Size, 10)+" bytes)")
		s.sub("Created", s.moment(i.Created))
		s.sub("Used by", orNone(strings.Join(i.UsedBy, " ")))
	}
	return nil
}
