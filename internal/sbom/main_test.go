package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

func TestProgramsAreListedWithTheirModules(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, to := range []*bytes.Buffer{&first, &second} {
		if err := write(to, "1.2", []string{program}); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two lists of one program differ")
	}
	bom := cyclonedx.BOM{}
	if err := cyclonedx.NewBOMDecoder(&first, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c.Name != "hostler" || c.Version != "1.2" {
		t.Errorf("the product is %s %s", c.Name, c.Version)
	}
	found := false
	for _, c := range *bom.Components {
		found = found || strings.HasPrefix(c.PackageURL, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v")
	}
	if !found {
		t.Errorf("a linked module is missing in %v", *bom.Components)
	}
	if write(&first, "1.2", []string{"/etc/passwd"}) == nil {
		t.Error("a file that is no Go program has modules")
	}
}
