//go:build integration

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"hostler/agent/reconcile"
	"hostler/agent/spec"
	"hostler/agent/state"
	"hostler/agent/storageprovisioner"
	"hostler/internal/run"
	"hostler/storage"
	"hostler/storage/idmap"
	"hostler/storage/loop"
	"hostler/storage/managedfs"
	"hostler/storage/tmpfs"
	"hostler/tests/harness"
)

// folder is one for volumes, on a filesystem of the machine that is no memory.
func folder(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "hostler-bench") //nolint:usetesting // see above
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		harness.PullStorage(b, dir)
		_ = os.RemoveAll(dir)
	})
	return dir
}

const (
	volumes    = 30
	volumeSize = 256 << 20
)

// BenchmarkVolumes makes volumes with ext4 on them and mounts them, by the agent
// and by shell commands.
func BenchmarkVolumes(b *testing.B) {
	const rounds = 3
	var ours, theirs []time.Duration
	for range rounds {
		dir := folder(b)
		ours = append(ours, took(func() { byAgent(b, dir) }))
		harness.PullStorage(b, dir)
		dir = folder(b)
		theirs = append(theirs, took(func() { byHand(b, dir) }))
		harness.PullStorage(b, dir)
	}
	ratio(fmt.Sprintf("%d × (256 MiB volume, ext4, mount) against fallocate, losetup, mkfs.ext4, mount", volumes), ours, theirs, 0.45)
}

func byAgent(b *testing.B, dir string) {
	b.Helper()
	ctx := context.Background()
	disks := loop.New(loop.Options{Dir: filepath.Join(dir, "volumes"), Namespace: "bench"})
	managed := managedfs.New(managedfs.Options{Dir: filepath.Join(dir, "filesystems"), Namespace: "bench", Runner: run.Host{}})
	var made []storage.VolumeParams
	var attached []storage.VolumeAttachParams
	for _, name := range names("v", volumes) {
		r := storage.Ref{ID: name, Stamp: storage.Stamp{Namespace: "bench", UID: name}}
		made = append(made, storage.VolumeParams{Ref: r, Size: volumeSize})
		attached = append(attached, storage.VolumeAttachParams{Ref: r})
	}
	well(b, disks.Create(ctx, made))
	var filesystems []storage.FilesystemParams
	var mounted []storage.FilesystemAttachParams
	for i, device := range well(b, disks.Attach(ctx, attached)) {
		r := made[i].Ref
		filesystems = append(filesystems, storage.FilesystemParams{Ref: r, Type: "ext4", Device: device.Device})
		mounted = append(mounted, storage.FilesystemAttachParams{Ref: r, Device: device.Device, Path: filepath.Join(dir, "mounts", r.ID)})
	}
	well(b, managed.Create(ctx, filesystems))
	well(b, managed.Attach(ctx, mounted))
}

func well[T any](b *testing.B, results []storage.Result[T]) (values []T) {
	b.Helper()
	for _, r := range results {
		if r.Err != nil {
			b.Fatal(r.Err)
		}
		values = append(values, r.Value)
	}
	return values
}

const shell = `set -e
for n in $(seq -w $2); do
  fallocate -l $3 "$1/$n.img"
  device=$(losetup --find --show "$1/$n.img")
  mkfs.ext4 -q "$device"
  mkdir -p "$1/mounts/$n"
  mount "$device" "$1/mounts/$n"
done`

func byHand(b *testing.B, dir string) {
	b.Helper()
	harness.Run(b, "sh", "-c", shell, "sh", dir, fmt.Sprint(volumes), fmt.Sprint(volumeSize))
}

// BenchmarkSteadyStorage looks at a thousand attachments that are as declared.
func BenchmarkSteadyStorage(b *testing.B) {
	const attachments, machines = 1000, 100
	dir, ctx := folder(b), b.Context()
	store, _, err := state.Open(ctx, state.Options{Dir: filepath.Join(dir, "store")})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	given := map[string][]spec.Attachment{}
	writes := []state.Write{}
	for i, name := range names("t", attachments) {
		machine := names("m", machines)[i%machines]
		given[machine] = append(given[machine], spec.Attachment{Filesystem: name, Path: "/" + name})
		writes = append(writes, state.Write{
			ID: state.ID{Kind: spec.KindFilesystem, Name: name}, Life: state.Alive,
			Spec: spec.Encode(spec.FilesystemRecord{Header: spec.Header{Declaration: "bench"}, Filesystem: spec.Filesystem{Provider: "tmpfs", Size: spec.MiB}}),
		})
	}
	for name, attachments := range given {
		machine := spec.Machine{Type: spec.LXD, Image: "lxd:tiny", Privileged: true, Storage: attachments}
		writes = append(writes, state.Write{
			ID: state.ID{Kind: spec.KindMachine, Name: name}, Life: state.Alive,
			Spec: spec.Encode(spec.MachineRecord{Header: spec.Header{Declaration: "bench"}, Machine: machine}),
		})
	}
	if _, err := store.Write(ctx, state.Atomic, writes...); err != nil {
		b.Fatal(err)
	}
	counts := &operations{}
	w := storageprovisioner.New(reconcile.Common{Store: store, Metrics: counts, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, storageprovisioner.Options{
		Defaults: storageprovisioner.Config{Namespace: "bench"},
		Sources: storageprovisioner.Sources{
			Filesystems: map[string]storage.FilesystemSource{"tmpfs": tmpfs.New(tmpfs.Options{Dir: filepath.Join(dir, "tmpfs"), Namespace: "bench"})},
			Views:       idmap.New(idmap.Options{Dir: filepath.Join(dir, "views"), Runner: run.Host{}}),
			Mounts:      filepath.Join(dir, "mounts"), ViewDir: filepath.Join(dir, "views"),
			Map: func(context.Context, spec.ContainerType) (idmap.Map, error) { return idmap.Map{}, nil },
		},
	})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- w.Run(running) }()
	harness.Wait(b, "the attachments", 10*time.Minute, func() error {
		if n := len(harness.Mounts(b, filepath.Join(dir, "views"))); n < attachments {
			return fmt.Errorf("%d are attached", n)
		}
		return nil
	})
	fmt.Printf("        %d attachments made in %.1f s\n", attachments, time.Since(began).Seconds())
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	before, done := harness.Mounts(b, dir), counts.sum()
	var passes []time.Duration
	for range 20 {
		passes = append(passes, took(func() {
			if err := w.Prepare(ctx); err != nil {
				b.Fatal(err)
			}
		}))
	}
	if after := harness.Mounts(b, dir); !slices.Equal(before, after) || counts.sum() != done {
		b.Errorf("looking changed something: %d operations, %d mounts were %d", counts.sum()-done, len(after), len(before))
	}
	bound("steady pass over 1,000 attachments", milliseconds(median(passes)), 25, "ms", "no operation and no mount; median of 20: "+seconds(passes))
}

// operations counts what a worker does.
type operations struct {
	mu sync.Mutex
	n  int
}

func (o *operations) Pass(time.Duration, error) {}

func (o *operations) Operation(string, time.Duration, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
}

func (o *operations) sum() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// BenchmarkRacingAttachers has three agents attach 200 loop devices at once.
func BenchmarkRacingAttachers(b *testing.B) {
	const racers, all = 3, 200
	dir, ctx := folder(b), b.Context()
	var wg sync.WaitGroup
	sources := make([]*loop.Source, racers)
	params := make([][]storage.VolumeAttachParams, racers)
	for i := range sources {
		namespace := fmt.Sprintf("racer%d", i)
		sources[i] = loop.New(loop.Options{Dir: filepath.Join(dir, namespace), Namespace: namespace})
	}
	for i, name := range names("v", all) {
		r := storage.Ref{ID: name, Stamp: storage.Stamp{Namespace: fmt.Sprintf("racer%d", i%racers), UID: name}}
		well(b, sources[i%racers].Create(ctx, []storage.VolumeParams{{Ref: r, Size: 2 * int64(spec.MiB), Sparse: true}}))
		params[i%racers] = append(params[i%racers], storage.VolumeAttachParams{Ref: r})
	}
	var mu sync.Mutex
	devices := map[string]bool{}
	elapsed := took(func() {
		for i, s := range sources {
			wg.Go(func() {
				for _, r := range s.Attach(ctx, params[i]) {
					if r.Err != nil {
						b.Error(r.Err)
					}
					mu.Lock()
					devices[r.Value.Device] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	})
	if len(devices) != all {
		b.Errorf("%d devices", len(devices))
	}
	bound("200 loop attaches by three racers, none lost", elapsed.Seconds(), 10, "s", fmt.Sprintf("%d devices", len(devices)))
}
