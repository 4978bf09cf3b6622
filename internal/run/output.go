package run

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A daemon that the program started may hold the program's outputs open for
// ever. So after the program's end, reading ends as soon as drainQuiet passes
// without output, and after drainMost in any case.
const (
	drainQuiet = 100 * time.Millisecond
	drainMost  = 5 * time.Second
	maxLine    = 64 << 10
	// pollEvery is the interval for reading the files of a NoKill program.
	pollEvery = 100 * time.Millisecond
)

// output reads all that a running program writes.
type output struct {
	stdout, stderr, status *stream

	lines sync.Mutex // serialises OnLine and OnStatus
	wg    sync.WaitGroup
}

type stream struct {
	r, w *os.File
	// file is set if r is a file in memory instead of a pipe. The program can
	// then continue to write after this process is killed, whereas a pipe would
	// end the program with SIGPIPE.
	file   bool
	tail   tailBuffer
	line   []byte
	onLine func(string)
	endAt  atomic.Int64 // time in Unix nanoseconds at which reading ends; 0 while the program runs
}

func newOutput(c Command) (*output, error) {
	limit := c.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	o := &output{}
	open := func(onLine func(string)) (*stream, error) {
		s := &stream{file: c.NoKill, onLine: onLine, tail: tailBuffer{limit: int(limit)}}
		var err error
		if s.file {
			s.r, s.w, err = memoryFile(c.Name())
		} else {
			s.r, s.w, err = os.Pipe()
		}
		return s, err
	}
	var err error
	if o.stdout, err = open(c.OnLine); err == nil {
		if o.stderr, err = open(c.OnLine); err == nil && c.OnStatus != nil {
			o.status, err = open(c.OnStatus)
		}
	}
	if err != nil {
		o.closeWriters()
		o.closeReaders()
		return nil, err
	}
	return o, nil
}

func (o *output) streams() []*stream {
	var all []*stream
	for _, s := range []*stream{o.stdout, o.stderr, o.status} {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

func (o *output) closeWriters() {
	for _, s := range o.streams() {
		if s.w == nil {
			continue
		}
		_ = s.w.Close()
	}
}

func (o *output) closeReaders() {
	for _, s := range o.streams() {
		if s.r == nil {
			continue
		}
		_ = s.r.Close()
	}
}

func (o *output) start() {
	for _, s := range o.streams() {
		o.wg.Go(func() { s.read(&o.lines) })
	}
}

// finish reads the rest of the ended program's output and closes the pipes.
func (o *output) finish() {
	end := time.Now().Add(drainMost)
	for _, s := range o.streams() {
		s.endAt.Store(end.UnixNano())
		if s.file {
			continue
		}
		_ = s.r.SetReadDeadline(time.Now().Add(drainQuiet))
	}
	o.wg.Wait()
	o.closeReaders()
}

// memoryFile returns the reading and the writing end of a nameless file.
func memoryFile(name string) (r, w *os.File, err error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	r = os.NewFile(uintptr(fd), name)
	// Both ends share an offset. Only writes move it, because reads give their
	// position.
	fd, err = unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = r.Close()
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return r, os.NewFile(uintptr(fd), name), nil
}

func (s *stream) read(lines *sync.Mutex) {
	if s.file {
		s.follow(lines)
	} else {
		s.drain(lines)
	}
	if len(s.line) > 0 {
		s.emit(lines)
	}
}

// follow reads a growing file until the program ends.
func (s *stream) follow(lines *sync.Mutex) {
	buf := make([]byte, 32<<10)
	var at int64
	for {
		ended := s.endAt.Load() != 0
		for {
			n, _ := s.r.ReadAt(buf, at)
			if n == 0 {
				break
			}
			at += int64(n)
			s.take(buf[:n], lines)
		}
		if ended {
			return
		}
		time.Sleep(pollEvery)
	}
}

// drain reads a pipe to its end, or until the program has ended and has no more
// output.
func (s *stream) drain(lines *sync.Mutex) {
	buf := make([]byte, 32<<10)
	for {
		end := s.endAt.Load()
		if end != 0 {
			if time.Now().UnixNano() > end {
				return
			}
			_ = s.r.SetReadDeadline(time.Now().Add(drainQuiet))
		}
		n, err := s.r.Read(buf)
		s.take(buf[:n], lines)
		if err == nil {
			continue
		}
		// If this read was already waiting when the program ended, its deadline may
		// have passed before the last output. Read once more.
		if errors.Is(err, os.ErrDeadlineExceeded) && end == 0 {
			continue
		}
		return
	}
}

func (s *stream) take(data []byte, lines *sync.Mutex) {
	s.tail.write(data)
	if s.onLine == nil {
		return
	}
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			if s.line = append(s.line, data...); len(s.line) > maxLine {
				s.emit(lines)
			}
			return
		}
		s.line = append(s.line, data[:i]...)
		s.emit(lines)
		data = data[i+1:]
	}
}

func (s *stream) emit(lines *sync.Mutex) {
	line := string(bytes.TrimSuffix(s.line, []byte("\r")))
	s.line = s.line[:0]
	lines.Lock()
	defer lines.Unlock()
	s.onLine(line)
}

// tailBuffer keeps the last limit bytes written to it.
type tailBuffer struct {
	limit int
	data  []byte
}

func (b *tailBuffer) write(p []byte) {
	b.data = append(b.data, p...)
	// Trim the data only when it exceeds twice the limit, so that each byte moves
	// once on average.
	if len(b.data) > 2*b.limit {
		b.data = append(b.data[:0], b.data[len(b.data)-b.limit:]...)
	}
}

func (b *tailBuffer) bytes() []byte {
	if len(b.data) > b.limit {
		return b.data[len(b.data)-b.limit:]
	}
	return b.data
}
