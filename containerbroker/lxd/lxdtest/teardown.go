package lxdtest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// removeTime bounds the attempts to remove an object.
const removeTime = 10 * time.Second

// tearDown removes everything that the server made. The test fails if something
// remains.
func (s *Server) tearDown() {
	if s.process != nil {
		s.Thaw()
		select {
		case <-s.exited:
			s.Run() // only LXD itself can remove its containers
		default:
		}
		if err := s.empty(); err != nil {
			s.t.Errorf("cannot empty LXD: %v", err)
		}
		s.Stop()
	}
	removePairs(s.links)
	for _, mount := range mountsBelow(s.Dir) {
		if err := syscall.Unmount(mount, syscall.MNT_DETACH); err != nil {
			s.t.Errorf("cannot unmount %s: %v", mount, err)
		}
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		s.t.Errorf("cannot remove LXD's directory: %v", err)
	}
	if s.Bridge != "" {
		if _, err := net.InterfaceByName(s.Bridge); err == nil {
			s.t.Errorf("bridge %s is left behind", s.Bridge)
		}
	}
	if left := loopsBelow(s.Dir); len(left) > 0 {
		s.t.Errorf("loop devices %v are left behind", left)
	}
}

// empty deletes instances, images, profiles, bridges and the pool, in the order
// of their dependencies. It continues after an error.
func (s *Server) empty() error {
	var instances []struct {
		Name string `json:"name"`
	}
	err := s.api(http.MethodGet, "/1.0/instances?recursion=1", nil, &instances)
	for _, i := range instances {
		path := "/1.0/instances/" + url.PathEscape(i.Name)
		err = errors.Join(err, s.remove(path, func() {
			_ = s.api(http.MethodPut, path+"/state", fields{"action": "stop", "force": true, "timeout": -1}, nil)
		}))
	}
	var images []string
	err = errors.Join(err, s.api(http.MethodGet, "/1.0/images", nil, &images))
	for _, path := range images {
		err = errors.Join(err, s.remove(path, nil))
	}
	err = errors.Join(err, s.api(http.MethodPut, "/1.0/profiles/default", fields{}, nil))
	var profiles []string
	err = errors.Join(err, s.api(http.MethodGet, "/1.0/profiles", nil, &profiles))
	for _, path := range profiles {
		if path != "/1.0/profiles/default" {
			err = errors.Join(err, s.remove(path, nil))
		}
	}
	var networks []struct {
		Name    string `json:"name"`
		Managed bool   `json:"managed"`
	}
	err = errors.Join(err, s.api(http.MethodGet, "/1.0/networks?recursion=1", nil, &networks))
	for _, n := range networks {
		if n.Managed {
			err = errors.Join(err, s.remove("/1.0/networks/"+n.Name, nil))
		}
	}
	return errors.Join(err, s.remove("/1.0/storage-pools/"+s.Pool, nil))
}

// remove deletes an object. It tries for removeTime, since a test may have left
// the object busy. It calls prepare, if set, before every attempt.
func (s *Server) remove(path string, prepare func()) error {
	deadline := time.Now().Add(removeTime)
	for {
		if prepare != nil {
			prepare()
		}
		var refusal *Refusal
		err := s.api(http.MethodDelete, path, nil, nil)
		if err == nil || errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", path, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// mountsBelow returns the mount points under dir, deepest first.
func mountsBelow(dir string) []string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []string
	for line := range strings.SplitSeq(string(table), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	slices.Sort(found)
	slices.Reverse(found)
	return found
}

// loopsBelow returns the loop devices whose files are under dir.
func loopsBelow(dir string) []string {
	backings, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil
	}
	var found []string
	for _, path := range backings {
		if file, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(file), dir+"/") {
			found = append(found, path)
		}
	}
	return found
}
