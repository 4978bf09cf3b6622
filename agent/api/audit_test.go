package api

import (
	"strings"
	"testing"
)

func TestTheAuditOfAnApplyNamesItsDeclarations(t *testing.T) {
	b := newBench(t)
	b.few(1)
	for _, content := range []string{yaml("a"), yaml("a", "b")} { // the second is refused
		body := `{"documents":[{"name":"web.yaml","content":` + quoted("name: shop\n"+content) + `}]}`
		w := b.as(peer(2000, adminGID), "POST", "/v1/apply", "application/json", body)
		if line := lastLine(b.log.String(), "are to be applied"); !strings.Contains(line, "declarations=shop") || !strings.Contains(line, "uid=2000") {
			t.Errorf("%d: the log says %q", w.Code, line)
		}
	}
	if n := strings.Count(b.log.String(), "are to be applied"); n != 2 {
		t.Errorf("%d lines", n)
	}
}

func quoted(s string) string { return `"` + strings.ReplaceAll(s, "\n", `\n`) + `"` }

func lastLine(text, with string) (line string) {
	for l := range strings.Lines(text) {
		if strings.Contains(l, with) {
			line = l
		}
	}
	return line
}
