package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// crawl uploads mailings at just the minimum rate until ctx ends. It reports each upload that the api begins to
// read.
func crawl(ctx context.Context, g *gateway, key string, began chan<- struct{}) {
	for ctx.Err() == nil {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		crawlOver(conn, key, began)
		stop()
		_ = conn.Close()
	}
}

func crawlOver(conn net.Conn, key string, began chan<- struct{}) {
	_, err := fmt.Fprintf(conn, "POST /mailings HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000000\r\nExpect: 100-continue\r\n\r\n", key)
	if err != nil {
		return
	}
	// The api requests the body when the upload has a slot.
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		return
	}
	select {
	case began <- struct{}{}:
	default:
	}
	text := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"lista.csv\"\r\n\r\nemail\r\n"
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for ; err == nil; <-every.C {
		_, err = io.WriteString(conn, text)
		text = strings.Repeat("ana@example.com\n", 160) // 2.5 KiB, where 2.2 are required
	}
}

// Companies that occupy all slots with uploads at the minimum rate have uploads aborted for one that waits.
func TestUploads_SlowOnesMakeRoom(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := make(chan struct{}, 8)
	for range 4 {
		key := g.newKey(t, g.Database.Company(t), nil).String()
		for range 6 { // two are received, two wait for them, and two more wait for those
			go crawl(ctx, g, key, began)
		}
	}
	for range 8 {
		select {
		case <-began:
		case <-time.After(3 * time.Minute):
			t.Fatal("not all places are taken")
		}
	}
	started := time.Now()
	for range 2 {
		r := g.upload(t, given(part{name: "name", value: fmt.Sprint(time.Now().UnixNano())}), nil)
		if r.Status != http.StatusAccepted {
			t.Fatalf("%d %s after %s", r.Status, r.Body, time.Since(started))
		}
	}
	t.Logf("two uploads beside the slow ones: %s", time.Since(started))
	// Ten seconds each: for a slot among the forms, and for one among the uploads.
	if took := time.Since(started); took > 3*time.Minute {
		t.Errorf("two uploads took %s", took)
	}
}
