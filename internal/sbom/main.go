// Command sbom writes a software bill of materials of Go programs to standard
// output, as CycloneDX JSON. It reads the linked modules from the programs
// themselves, so the list contains no module that is only in go.mod. Equal
// programs give byte-identical output.
//
//	sbom VERSION PROGRAM...
package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION PROGRAM...")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(to io.Writer, version string, programs []string) error {
	modules := map[string]cyclonedx.Component{}
	depends := map[string][]string{}
	product := cyclonedx.Component{BOMRef: "hostler", Type: cyclonedx.ComponentTypeApplication, Name: "hostler", Version: version}
	var parts []cyclonedx.Component
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("cannot read the modules of %s: %w", program, err)
		}
		name := filepath.Base(program)
		parts = append(parts, cyclonedx.Component{BOMRef: name, Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version})
		depends[product.BOMRef] = append(depends[product.BOMRef], name)
		std := module("std", info.GoVersion[len("go"):], "")
		modules[std.BOMRef] = std
		depends[name] = append(depends[name], std.BOMRef)
		for _, dep := range info.Deps {
			if dep.Replace != nil {
				dep = dep.Replace
			}
			m := module(dep.Path, dep.Version, dep.Sum)
			modules[m.BOMRef] = m
			depends[name] = append(depends[name], m.BOMRef)
		}
	}
	product.Components = &parts
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &product}
	bom.Components = sorted(modules, func(m cyclonedx.Component) string { return m.BOMRef })
	edges := map[string]cyclonedx.Dependency{}
	for ref, on := range depends {
		slices.Sort(on)
		edges[ref] = cyclonedx.Dependency{Ref: ref, Dependencies: &on}
	}
	bom.Dependencies = sorted(edges, func(d cyclonedx.Dependency) string { return d.Ref })
	return cyclonedx.NewBOMEncoder(to, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// module returns the component of a Go module. The module's hash from go.sum,
// if known, becomes a property.
func module(path, version, sum string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}

func sorted[V any](all map[string]V, key func(V) string) *[]V {
	list := make([]V, 0, len(all))
	for _, v := range all {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b V) int { return cmp.Compare(key(a), key(b)) })
	return &list
}
