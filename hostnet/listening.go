package hostnet

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listening returns the protocols and ports of the host's listening sockets,
// e.g. tcp/80. dir is the folder /proc/net. Unreadable files are skipped,
// because the result serves only warnings.
func Listening(dir string) map[string]bool {
	all := map[string]bool{}
	for name, waits := range map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"} { // the kernel's TCP_LISTEN and TCP_CLOSE
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 4 || fields[3] != waits {
				continue
			}
			_, port, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseUint(port, 16, 16); err == nil {
				all[fmt.Sprintf("%s/%d", strings.TrimSuffix(name, "6"), n)] = true
			}
		}
		_ = f.Close()
	}
	return all
}
