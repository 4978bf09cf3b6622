package idmap

import "testing"

func TestRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		want  Map
		fails bool
	}{
		"from root's rows":                  {`[{"Isuid":true,"Isgid":false,"Hostid":100000,"Nsid":0,"Maprange":65536},{"Isuid":false,"Isgid":true,"Hostid":200000,"Nsid":0,"Maprange":65536}]`, guest, false},
		"the default":                       {`[{"Isuid":true,"Isgid":false,"Hostid":1000000,"Nsid":0,"Maprange":1000000000},{"Isuid":false,"Isgid":true,"Hostid":1000000,"Nsid":0,"Maprange":1000000000}]`, Map{Users: Range{1000000, 1000000000}, Groups: Range{1000000, 1000000000}}, false},
		"one range for both":                {`[{"Isuid":true,"Isgid":true,"Hostid":1065536,"Nsid":0,"Maprange":65536}]`, Map{Users: Range{1065536, 65536}, Groups: Range{1065536, 65536}}, false},
		"a user of the host passed through": {`[{"Isuid":true,"Isgid":false,"Hostid":1000000,"Nsid":0,"Maprange":1000},{"Isuid":true,"Isgid":true,"Hostid":1000,"Nsid":1000,"Maprange":1}]`, Map{}, true},
		"privileged":                        {`[]`, Map{}, true},
		"damaged":                           {`[{"Isuid"`, Map{}, true},
	} {
		if got, err := Recorded(c.text); got != c.want && err == nil || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
