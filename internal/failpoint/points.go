// Package failpoint names the points at which a test may kill, fail, delay or
// panic the process. Each point stands between a durable intent and its effect,
// or between an effect and its record. Without the build tag "failpoint", Hit
// does nothing and costs nothing.
package failpoint

import "slices"

// Point is the name of a crash point.
type Point string

// The crash points.
const (
	StoreBeforeIntent      Point = "store-before-intent"
	StoreAfterIntent       Point = "store-after-intent"
	StoreEffectNoResult    Point = "store-after-effect-before-result"
	StoreResultNoAck       Point = "store-after-result-before-ack"
	StoreBackupNoRename    Point = "store-backup-before-rename"
	StoreBackupNoDirSync   Point = "store-backup-after-rename-before-sync"
	StoreMidMigration      Point = "store-mid-migration"
	StoreEventAppend       Point = "store-event-append"
	StoreIdentityNoRename  Point = "store-identity-before-rename"
	InitLockHeld           Point = "init-lock-held-before-apt"
	InitDownload           Point = "init-during-download"
	InitUnpack             Point = "init-during-unpack"
	InitPostinst           Point = "init-during-postinst"
	InitAptNoRecord        Point = "init-after-apt-before-record"
	InitWaitDaemon         Point = "init-waiting-for-daemon"
	InitConfigured         Point = "init-after-first-configuration"
	InitConfNoRename       Point = "init-conf-tmp-written"
	InitConfRenamed        Point = "init-conf-renamed"
	LXDBeforePost          Point = "lxd-before-post"
	LXDPostNoReply         Point = "lxd-post-sent-no-reply"
	LXDOpNotRecorded       Point = "lxd-op-known-not-recorded"
	LXDImageDownloading    Point = "lxd-image-downloading"
	LXDCreatedNotRecorded  Point = "lxd-created-not-recorded"
	LXDBeforeStart         Point = "lxd-before-start"
	LXDStartedNotRecorded  Point = "lxd-started-not-recorded"
	LXDStopping            Point = "lxd-stopping"
	LXDDeleteSent          Point = "lxd-delete-sent"
	LXDDeletedNotRecorded  Point = "lxd-deleted-not-recorded"
	LXDEventResync         Point = "lxd-event-resync"
	KVMDefineNoReply       Point = "kvm-define-sent-no-reply"
	KVMOverlayMade         Point = "kvm-overlay-made"
	KVMSeedMade            Point = "kvm-seed-made"
	KVMBeforeStart         Point = "kvm-defined-not-started"
	KVMStartNoReply        Point = "kvm-start-sent-no-reply"
	KVMDestroyed           Point = "kvm-destroyed-files-left"
	KVMFilesGone           Point = "kvm-files-gone-not-undefined"
	LXCUnpacking           Point = "lxc-unpacking"
	LXCMaking              Point = "lxc-making"
	LXCSnapshot            Point = "lxc-snapshot"
	LXCSeeded              Point = "lxc-seeded"
	LXCRenamedNotRecorded  Point = "lxc-renamed-not-recorded"
	LXCBeforeStart         Point = "lxc-before-start"
	LXCStartedNotRecorded  Point = "lxc-started-not-recorded"
	LXCStopping            Point = "lxc-stopping"
	LXCConfigWritten       Point = "lxc-config-written"
	LXCRenamedAway         Point = "lxc-renamed-away"
	LXCSubvolumeLeft       Point = "lxc-subvolume-left"
	LoopBackingCreated     Point = "loop-backing-created"
	LoopHalfAllocated      Point = "loop-half-fallocated"
	LoopNumberTaken        Point = "loop-free-number-taken"
	LoopConfigured         Point = "loop-configured-not-recorded"
	LoopAutoclear          Point = "loop-autoclear-hand-over"
	LoopDetaching          Point = "loop-detaching"
	LoopBackingDeleting    Point = "loop-backing-deleting"
	MkfsRunning            Point = "mkfs-running"
	MkfsNotRecorded        Point = "mkfs-done-not-recorded"
	MountedNotRecorded     Point = "mounted-not-recorded"
	Unmounting             Point = "unmounting"
	TmpfsMounted           Point = "tmpfs-mounted"
	RootfsBound            Point = "rootfs-bound"
	DeviceNotRecorded      Point = "device-attached-not-recorded"
	NetBridgeUnstamped     Point = "net-bridge-created-unstamped"
	NetEnslaved            Point = "net-enslaved"
	NetReleased            Point = "net-released"
	NetAddressAdded        Point = "net-address-added"
	NetAddressDeleted      Point = "net-address-deleted"
	NetRouteAdded          Point = "net-route-added"
	NetRulesLoaded         Point = "net-rules-loaded"
	NetForwardingChanged   Point = "net-forwarding-changed"
	NetArmed               Point = "net-checkpoint-armed"
	NetNotProbed           Point = "net-before-probe"
	NetNotCommitted        Point = "net-probed-not-committed"
	NetRestoring           Point = "net-restoring"
	NetCommitted           Point = "net-committed"
	NetLastingWritten      Point = "net-lasting-file-written"
	APIAcceptedNotDurable  Point = "api-accepted-before-durable"
	APIDurableNotConfirmed Point = "api-durable-before-reply"
	MigrateBegun           Point = "migrate-begun"
	MigrateStopped         Point = "migrate-stopped"
	MigrateImported        Point = "migrate-imported"
	MigrateCompared        Point = "migrate-compared"
	MigrateRestamped       Point = "migrate-restamped"
	MigrateCommitted       Point = "migrate-committed"
	MigrateReady           Point = "migrate-ready"
	MigrateRemoved         Point = "migrate-removed"
)

// Points lists every point. A test fails if no test campaign covers a point.
var Points = slices.Concat([]Point{
	StoreBeforeIntent, StoreAfterIntent, StoreEffectNoResult, StoreResultNoAck,
	StoreBackupNoRename, StoreBackupNoDirSync, StoreMidMigration, StoreEventAppend, StoreIdentityNoRename,
	InitLockHeld, InitDownload, InitUnpack, InitPostinst, InitAptNoRecord, InitWaitDaemon,
	InitConfigured, InitConfNoRename, InitConfRenamed,
	LXDBeforePost, LXDPostNoReply, LXDOpNotRecorded, LXDImageDownloading, LXDCreatedNotRecorded,
	LXDBeforeStart, LXDStartedNotRecorded, LXDStopping, LXDDeleteSent, LXDDeletedNotRecorded, LXDEventResync,
	KVMDefineNoReply, KVMOverlayMade, KVMSeedMade, KVMBeforeStart, KVMStartNoReply, KVMDestroyed, KVMFilesGone,
	APIAcceptedNotDurable, APIDurableNotConfirmed,
}, LXC, Storage, Networks, Uplinks, Migrate)

// LXC lists the points of classic LXC's driver. The tests of containerbroker/lxc
// try these points, and tests/crash those with the whole agent.
var LXC = []Point{
	LXCUnpacking, LXCMaking, LXCSnapshot, LXCSeeded, LXCRenamedNotRecorded, LXCBeforeStart, LXCStartedNotRecorded,
	LXCStopping, LXCConfigWritten, LXCRenamedAway, LXCSubvolumeLeft,
}

// Storage lists the points on the way from a declaration to a machine's
// storage, and on the way back. tests/storage tries each of these points.
var Storage = []Point{
	LoopBackingCreated, LoopHalfAllocated, LoopNumberTaken, LoopConfigured, LoopAutoclear,
	MkfsRunning, MkfsNotRecorded, MountedNotRecorded, TmpfsMounted, RootfsBound, DeviceNotRecorded,
	Unmounting, LoopDetaching, LoopBackingDeleting,
}

// Networks lists the points of a network without NICs of the host. tests/crash
// tries each of these points.
var Networks = []Point{
	NetBridgeUnstamped, NetAddressAdded, NetAddressDeleted, NetRouteAdded, NetRulesLoaded, NetForwardingChanged,
}

// Uplinks lists the further points of a guarded change of the host's own NICs.
// The tests of hostnet/guard try these points, except the point of the lasting
// files, which the tests of hostnet/persist try.
var Uplinks = []Point{
	NetEnslaved, NetReleased, NetArmed, NetNotProbed, NetNotCommitted, NetRestoring, NetCommitted, NetLastingWritten,
}

// Migrate lists the points on a machine's way from LXD to Incus. tests/migrate
// tries these points.
var Migrate = []Point{
	MigrateBegun, MigrateStopped, MigrateImported, MigrateCompared, MigrateRestamped, MigrateCommitted, MigrateReady, MigrateRemoved,
}
