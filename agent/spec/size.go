package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The units of sizes, in bytes.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

// sizeUnits are sorted from large to small, so that String() finds the largest
// unit without a remainder. B expresses all other sizes exactly.
var sizeUnits = []struct {
	suffix string
	size   Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// ParseSize reads a size in bytes from text, e.g. 512MiB: a whole number and a
// unit of B, KiB, MiB, GiB, TiB. The error says how to correct the text.
func ParseSize(s string) (Size, error) {
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	number, unit := s[:digits], s[digits:]
	switch {
	case s == "":
		return 0, fmt.Errorf("a size is missing; write it like 512MiB or 1GiB")
	case digits == 0:
		return 0, fmt.Errorf("%s is not a size; write it like 512MiB or 1GiB", quote(s))
	case unit == "" && digits > 6 && digits <= 12: // no host has that many MiB, so bytes were meant
		return 0, fmt.Errorf("%s has no unit; write %sB for bytes, or a size like 512MiB", quote(s), number)
	case unit == "" && digits <= 12:
		return 0, fmt.Errorf("%s has no unit; write %sMiB, or the number with KiB, GiB or TiB", quote(s), number)
	case strings.HasPrefix(unit, "."):
		return 0, fmt.Errorf("%s is not a whole number; use a smaller unit, like 1536MiB for 1.5GiB", quote(s))
	}
	for _, u := range sizeUnits {
		if unit != u.suffix {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n > int64(math.MaxInt64/u.size) {
			return 0, fmt.Errorf("%s is too large to be a size", quote(s))
		}
		return Size(n) * u.size, nil
	}
	if mended := mendUnit(unit); mended != "" {
		return 0, fmt.Errorf("%s has an unknown unit; did you mean %s%s?", quote(s), number, mended)
	}
	return 0, fmt.Errorf("%s has an unknown unit; use KiB, MiB, GiB or TiB, like 512MiB", quote(s))
}

// mendUnit guesses the unit from spellings that are common elsewhere, e.g. M,
// MB, mb, Mi, mib, " MiB". It returns "" if it finds none.
func mendUnit(unit string) string {
	u := strings.ToUpper(strings.TrimSpace(unit))
	if len(u) > 3 || len(u) == 0 || !strings.ContainsRune("KMGT", rune(u[0])) {
		return ""
	}
	switch u[1:] {
	case "", "B", "I", "IB":
		return u[:1] + "iB"
	}
	return ""
}

// String writes the size with the largest unit that is exact: 512MiB.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.suffix
		}
	}
	return "0B"
}

// MarshalText writes the size for JSON and YAML.
func (s Size) MarshalText() ([]byte, error) {
	if s < 0 {
		return nil, fmt.Errorf("cannot write the negative size %d", int64(s))
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads the size from text, as ParseSize() does.
func (s *Size) UnmarshalText(text []byte) error {
	v, err := ParseSize(string(text))
	if err != nil {
		return err
	}
	*s = v
	return nil
}
