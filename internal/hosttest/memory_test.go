package hosttest

import (
	"os"
	"testing"
)

func TestMemoryDirEndsWithTheTest(t *testing.T) {
	var dirs []string
	t.Run("inner", func(t *testing.T) {
		for range 2 {
			dirs = append(dirs, MemoryDir(t))
		}
		for _, dir := range dirs {
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Errorf("%s holds %v, %v", dir, files, err)
			}
		}
	})
	if dirs[0] == dirs[1] {
		t.Errorf("two calls return %s", dirs[0])
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}
