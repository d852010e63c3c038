package offline

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadOnlyDiskIsInspected: the kernel refuses every write to a disk that is mounted
// so, even by root.
func TestReadOnlyDiskIsInspected(t *testing.T) {
	path := madeFolder(t, entriesOf(three, usual()...), 5)
	if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(path, unix.MNT_DETACH)) })
	must(t, unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err := unix.Access(path+"/lock", unix.W_OK); err == nil {
		t.Fatal("the disk can be written to")
	}
	report, err := Inspect(path, 1)
	if err != nil || report.Latest.Leases != 2 || len(report.Damage) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
