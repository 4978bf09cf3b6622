package cli

import (
	"slices"
	"strings"

	"hostler/agent/spec"
)

// kindImage exists in the command line only, because images are not objects of
// the store.
const kindImage = "image"

// kindAttachment and kindBlockDevice are not objects of the store either. Other
// objects and the host report them.
const (
	kindAttachment  = "attachment"
	kindBlockDevice = "block-device"
)

// kindAll stands for every kind in `get all`.
const kindAll = "all"

// kindNames lists the words for each kind, which are the plural, the singular
// and short forms.
var kindNames = []struct {
	kind  string
	words []string
}{
	{spec.KindMachine, []string{"machines", "machine", "m"}},
	{spec.KindVolume, []string{"volumes", "volume", "vol", "vols", "v"}},
	{spec.KindFilesystem, []string{"filesystems", "filesystem", "fs"}},
	{kindAttachment, []string{"attachments", "attachment", "att"}},
	{kindBlockDevice, []string{"block-devices", "block-device", "blockdevices", "bd"}},
	{spec.KindNetwork, []string{"networks", "network", "net", "nets", "n"}},
	{kindImage, []string{"images", "image", "img", "i"}},
	{spec.KindDeclaration, []string{"declarations", "declaration", "decl", "d"}},
	{kindAll, []string{"all", "everything"}},
}

// parseKind accepts every word of a kind, e.g. "vol" for volumes.
func parseKind(word string) (string, error) {
	var known []string
	for _, k := range kindNames {
		if slices.Contains(k.words, strings.ToLower(word)) {
			return k.kind, nil
		}
		known = append(known, k.words[0])
	}
	return "", unknownKind(word, known)
}

func unknownKind(word string, known []string) error {
	return usage("unknown kind %q%s", word, didYouMean(word, known)).hint("kinds are " + strings.Join(known, ", "))
}

// plural returns the plural of a kind's word.
func plural(kind string) string {
	for _, k := range kindNames {
		if k.kind == kind {
			return k.words[0]
		}
	}
	return kind
}

// objectKinds are the kinds of declared objects, as in KIND/NAME.
var objectKinds = []string{spec.KindMachine, spec.KindVolume, spec.KindFilesystem, spec.KindNetwork, spec.KindDeclaration}

// reference is a parsed KIND/NAME.
type reference struct{ kind, name string }

func machineNamed(name string) reference { return reference{spec.KindMachine, name} }

func (r reference) String() string { return r.kind + "/" + r.name }

// parseReference parses KIND/NAME. allowed lists the allowed kinds; none means
// objectKinds. The error for a bare name shows the right form.
func parseReference(s string, allowed ...string) (reference, error) {
	word, name, ok := strings.Cut(s, "/")
	if !ok {
		return reference{}, usage("%q is not KIND/NAME", s).hint("write machine/" + nameOr(s))
	}
	if len(allowed) == 0 {
		allowed = objectKinds
	}
	kind, err := parseKind(word)
	if err != nil {
		return reference{}, unknownKind(word, allowed)
	}
	if !slices.Contains(allowed, kind) {
		return reference{}, usage("%q: %s are not possible here", s, plural(kind)).hint("this command takes " + strings.Join(allowed, ", "))
	}
	if err := checkName(name); err != nil {
		return reference{}, err
	}
	return reference{kind, name}, nil
}

func parseReferences(args []string, allowed ...string) ([]reference, error) {
	out := make([]reference, 0, len(args))
	for _, a := range args {
		r, err := parseReference(a, allowed...)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out, nil
}

// parseMachine parses a machine's name, bare or as machine/NAME.
func parseMachine(s string) (string, error) {
	if strings.Contains(s, "/") {
		r, err := parseReference(s, spec.KindMachine)
		return r.name, err
	}
	return s, checkName(s)
}

func nameOr(s string) string {
	if checkName(s) == nil {
		return s
	}
	return "NAME"
}

// checkName refuses a name that no object can have; names match
// [a-z][a-z0-9-]{0,62}.
func checkName(s string) error {
	ok := len(s) >= 1 && len(s) <= 63 && s[0] >= 'a' && s[0] <= 'z'
	for i := range len(s) {
		c := s[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !ok {
		return usage("%q is not a name", cut(s, 80)).hint("names are a lower-case letter, then up to 62 of a-z, 0-9 and -")
	}
	return nil
}

// didYouMean returns `, did you mean "x"?` if a known word is close, else "".
func didYouMean(word string, known []string) string {
	near := closest(word, known, 1)
	if len(near) == 0 {
		return ""
	}
	return `, did you mean "` + near[0] + `"?`
}

// closest returns up to n known words that are close to the word, nearest
// first.
func closest(word string, known []string, n int) []string {
	type scored struct {
		word string
		d    int
	}
	var found []scored
	limit := max(1, len(word)/3)
	for _, k := range known {
		d := distance(strings.ToLower(word), k)
		if strings.HasPrefix(k, word) || strings.HasPrefix(word, k) {
			d = min(d, 1)
		}
		if d <= limit {
			found = append(found, scored{k, d})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return a.d - b.d })
	var out []string
	for i := range min(n, len(found)) {
		out = append(out, found[i].word)
	}
	return out
}

// distance returns the number of edits that turn a into b. An edit inserts,
// deletes or replaces a character, or swaps two neighbours.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
