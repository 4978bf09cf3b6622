package run_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"hostler/internal/run"
)

// A program in a user namespace is root there and an unprivileged user here.
func TestUserNamespace(t *testing.T) {
	var seen string
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = run.Host{}.Run(t.Context(), run.Command{
		Path: "/bin/cat", Stdin: r,
		Users: &run.UserNamespace{FirstUser: 100000, Users: 65536, FirstGroup: 200000, Groups: 65536},
		OnStart: func(pid int) {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/uid_map")
			if err != nil {
				t.Error(err)
			}
			seen = strings.Join(strings.Fields(string(text)), " ")
			_ = w.Close()
		},
	})
	if err != nil || seen != "0 100000 65536" {
		t.Errorf("%q, %v", seen, err)
	}
}
