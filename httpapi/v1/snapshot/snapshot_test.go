package snapshot_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store/archive"
	"github.com/signalbox/signalbox/test/apitest"
)

// put is a restore into the cluster of the tests.
const put = "PUT /v1/snapshot?cluster=" + apitest.ClusterID

// begun returns an API whose cluster has had a leader, as every cluster with a state.
func begun(t *testing.T, change ...func(*apitest.Config)) *apitest.API {
	t.Helper()
	a := apitest.New(t, change...)
	begin(a)
	return a
}

func begin(a *apitest.API) {
	first := fsm.StartTerm{Term: 3, Leader: "n1", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{0xc0, 15: 1}, Level: fsm.FeatureLevel}
	a.Node.Set(func() { a.Node.Apply(fsm.Envelope{}.Encode(first)) })
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":3}`)
}

// TestBackupIsStreamed: a backup is sent with the headers of its moment, and can be read as this state.
func TestBackupIsStreamed(t *testing.T) {
	a := begun(t)
	got := a.Do("GET /v1/snapshot", "")
	for name, want := range map[string]string{
		"X-Signalbox-Index": "2", "X-Signalbox-Term": "3", "X-Signalbox-Cluster": "c0000000000000000000000000000001", "X-Signalbox-Cluster-Time-Ms": "0",
		"Content-Type": "application/octet-stream", "Content-Disposition": `attachment; filename="signalbox-2.backup"`,
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
	h, state, err := backup.Read(strings.NewReader(got.Text))
	if got.Status != 200 || err != nil || h.Index != 2 || h.Term != 3 || h.WallTime.Unix() != 1_767_225_600 {
		t.Fatalf("status %d, %+v, %v", got.Status, h, err)
	}
	if view, found := state.Semaphore("db"); !found || view.Permits != 3 {
		t.Errorf("the state has %+v", view)
	}
	if head := a.Do("HEAD /v1/snapshot", ""); head.Status != 200 || head.Text != "" || head.Header.Get("X-Signalbox-Term") != "3" {
		t.Errorf("HEAD: %d with %d bytes", head.Status, len(head.Text))
	}
	a.Do("GET /v1/snapshot?stale", "").RefusedWith(400, "invalid-request")
	a.Node.Fail = outcome.ErrNoLeader
	a.Do("GET /v1/snapshot", "").RefusedWith(503, "no-leader")
}

func TestRestoreIsAskedOfTheLeader(t *testing.T) {
	a := begun(t)
	file := a.Do("GET /v1/snapshot", "").Text
	a.Do(put, file).Is(200, "index=1002", "sessions=keep", "backup.index=2", "backup.term=3", "backup.level="+fmt.Sprint(fsm.FeatureLevel),
		"backup.cluster=c0000000000000000000000000000001", "backup.wall_time=2026-01-01T00:00:00Z", "backup.cluster_time_ms=0")
	a.Do(put+"&sessions=end", file).Is(200, "sessions=end")
	if got := fmt.Sprint(a.Node.Asked); got != "[restore, end sessions: false restore, end sessions: true]" {
		t.Errorf("asked: %s", got)
	}
	a.Do(put+"&sessions=all", file).RefusedWith(400, "invalid-request", "field=sessions")
	a.Do(put+"&session=end", file).RefusedWith(400, "invalid-request")
	a.Do(put, file, "Idempotency-Key: 5f1c9e2a7b3d4e60").RefusedWith(400, "invalid-request", "field=Idempotency-Key")
	a.Do(put, file, "Content-Encoding: gzip").RefusedWith(415, "unsupported-encoding")
	a.Node.StatusNow.Leader = ""
	a.Do(put, file).RefusedWith(503, "no-leader")
	a.Node.StatusNow.Leader, a.Node.Asked = "n2", nil
	a.Do(put, file).Is(200)
	if got := fmt.Sprint(a.Node.Asked); got != "[transfer n1 restore, end sessions: false]" {
		t.Errorf("a follower asked: %s", got)
	}
	a.Node.Fail = outcome.ErrNoTarget
	a.Do(put, file).RefusedWith(409, "not-leader", "leader=n2", "peer=n2:8711")
}

// TestRestoreNamesItsClusters: a restore must name the cluster whose state it replaces. If the backup is from another
// cluster, it must name that cluster too.
func TestRestoreNamesItsClusters(t *testing.T) {
	const other = "0000000000000000000000000000000f"
	a := begun(t)
	file := a.Do("GET /v1/snapshot", "").Text
	a.Do("PUT /v1/snapshot", file).RefusedWith(400, "invalid-request", "field=cluster")
	for _, id := range []string{"", "c0", strings.ToUpper(apitest.ClusterID), apitest.ClusterID + "00", "g" + other[1:]} {
		a.Do("PUT /v1/snapshot?cluster="+id, file).RefusedWith(400, "invalid-request", "field=cluster")
		a.Do(put+"&from="+id, file).RefusedWith(400, "invalid-request", "field=from")
	}
	a.Do("PUT /v1/snapshot?cluster="+other, file).RefusedWith(412, "precondition-failed")
	if len(a.Node.Asked) != 0 {
		t.Errorf("asked: %v", a.Node.Asked)
	}
	a.Do(put+"&from="+other, file).RefusedWith(422, "backup-refused")
	a.Do(put+"&from="+apitest.ClusterID, file).Is(200)
}

// TestRefusedRestores: each error of the node has its status, and the refusal names what is wrong with a backup.
func TestRefusedRestores(t *testing.T) {
	a := begun(t)
	file := a.Do("GET /v1/snapshot", "").Text
	for body, reason := range map[string]string{
		"":                           archive.ErrNoBackup.Error(),
		`{"permits":3}`:              archive.ErrNoBackup.Error(),
		file[:len(file)-1]:           archive.ErrCut.Error(),
		file + "x":                   archive.ErrDamaged.Error() + ": there are bytes after its end",
		file[:99] + "x" + file[100:]: archive.ErrDamaged.Error() + ": chunk 0",
	} {
		a.Do(put, body).RefusedWith(422, "backup-refused", "reason="+outcome.ErrBackupRefused.Error()+": "+reason)
	}
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{outcome.ErrRestoring, 429, "limit-reached"}, {outcome.ErrNotLeader, 503, "no-leader"}, {outcome.ErrOutcomeUnknown, 504, "outcome-unknown"},
		{outcome.ErrLevelUnknown, 409, "level-unknown"}, {outcome.ErrStorageFull, 503, "storage-full"}, {outcome.ErrNotApplied, 503, "not-applied"},
	} {
		a.Node.Fail = fmt.Errorf("in the end: %w", c.err)
		a.Do(put, file).RefusedWith(c.status, c.code)
	}
}

// TestRestoreHasALimitOfItsOwn: a separate limit bounds the body of a restore, whether its length is announced or not.
func TestRestoreHasALimitOfItsOwn(t *testing.T) {
	a := begun(t, func(c *apitest.Config) { c.HTTP.Native.BackupBytes = 700; c.Exchange.BodyBytes = 100 })
	file := a.Do("GET /v1/snapshot", "").Text
	a.Do(put, file).Is(200)
	large := file + strings.Repeat("x", 700)
	a.Do(put, large).RefusedWith(413, "too-large", "limit=700")
	r, err := http.NewRequest("PUT", put[4:], io.MultiReader(strings.NewReader(large)))
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = -1
	a.Send(r).RefusedWith(422, "backup-refused") // its end came before
	long := make([]byte, 2000)
	copy(long, file[:81]) // up to the first chunk
	copy(long[81:], []byte{0, 0, 8, 0})
	r, err = http.NewRequest("PUT", put[4:], io.MultiReader(bytes.NewReader(long)))
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = -1
	a.Send(r).RefusedWith(413, "too-large", "limit=700")
}

// TestBackupsAreBounded: while two clients read their backups slowly, a third client is refused. A client that reads no
// byte for long is cut off.
func TestBackupsAreBounded(t *testing.T) {
	a, _, address := apitest.Serve(t, func(c *apitest.Config) { c.Exchange.BodyTimeout = 200 * time.Millisecond })
	begin(a)
	pairs := fmt.Sprintf(`{"metadata":{"k":"%s"},"permits":1}`, strings.Repeat("v", 1000))
	for i := range 12_000 { // more than the sockets buffer
		a.Must(201, fmt.Sprintf("PUT /v1/semaphores/s%d", i), pairs)
	}
	var slow []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /v1/snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	a.Do("GET /v1/snapshot", "").RefusedWith(429, "limit-reached", "rule=backups", "limit=2")
	for began := time.Now(); ; {
		if got := a.Do("GET /v1/snapshot", ""); got.Status == 200 {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("the slow clients were never cut off")
		}
	}
	rest, _ := io.ReadAll(slow[0]) // whatever the error
	if bytes.HasSuffix(rest, []byte("\r\n0\r\n\r\n")) {
		t.Error("a backup that was cut off looks like a whole reply")
	}
}

// TestTricklingUploadEnds: a client that sends a byte of a backup now and then is cut off, so that other clients get
// their turn.
func TestTricklingUploadEnds(t *testing.T) {
	a, _, address := apitest.Serve(t, func(c *apitest.Config) { c.Exchange.BodyTimeout = 200 * time.Millisecond })
	begin(a)
	file := a.Must(200, "GET /v1/snapshot", "").Text
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, put+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", len(file))
	replied := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		replied <- line
	}()
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for i := range file {
		select {
		case line := <-replied:
			if i < 2 || !strings.Contains(line, " 408 ") {
				t.Errorf("after %d bytes: %q", i, line)
			}
			return
		case <-pace.C:
			_, _ = conn.Write([]byte{file[i]}) // the connection may be closed
		}
	}
	t.Error("the whole backup was taken, byte by byte")
}
