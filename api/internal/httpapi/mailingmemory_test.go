package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// rowsFile is a generated file of n rows.
type rowsFile struct{ n, at int }

func (f *rowsFile) Read(p []byte) (int, error) {
	n := 0
	for ; f.at <= f.n && len(p)-n > 100; f.at++ {
		line := fmt.Sprintf("%d@example.com;Nome %d;Cidade %d;\n", f.at, f.at, f.at)
		if f.at == 0 {
			line = "email;nome;cidade;cpf\n"
		}
		n += copy(p[n:], line)
	}
	if n == 0 && f.at > f.n {
		return 0, io.EOF
	}
	return n, nil
}

// uploadRows uploads a generated file, and returns the mailing and the peak heap.
func uploadRows(t *testing.T, g *gateway, n int) (id string, peak uint64) {
	t.Helper()
	body, pipe := io.Pipe()
	w := multipart.NewWriter(pipe)
	go func() {
		writePart(t, w, mailingForm()[0])
		writePart(t, w, mailingForm()[1])
		_, err := io.CopyBuffer(struct{ io.Writer }{writePart(t, w, part{name: "file", filename: fmt.Sprint(n, ".csv")})}, &rowsFile{n: n}, make([]byte, 32<<10))
		_ = w.Close()
		_ = pipe.CloseWithError(err)
	}()
	var r reply
	peak = peakHeap(func() {
		r = g.do(t, call{Method: http.MethodPost, Path: "/mailings", Reader: body, Header: map[string]string{"Content-Type": w.FormDataContentType()}})
	})
	answer := r.json(t)
	if r.Status != http.StatusAccepted || answer["accepted"] != float64(n) {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	id, _ = answer["mailingId"].(string)
	return id, peak
}

// downloadRows downloads all rows of a mailing as CSV, and returns the peak heap and the times to the first and
// last byte.
func downloadRows(t *testing.T, g *gateway, id string, n int) (peak uint64, first, all time.Duration) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL+"/mailings/"+id+"/rows?format=csv", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-API-Key", g.Key.String())
	runtime.GC()
	lines := 0
	peak = peakHeap(func() {
		start := time.Now()
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		for scanner.Scan() {
			if lines++; lines == 1 {
				first = time.Since(start)
			}
		}
		if all = time.Since(start); scanner.Err() != nil {
			t.Error(scanner.Err())
		}
	})
	if lines != n+1 {
		t.Errorf("%d lines, want %d and the header", lines, n)
	}
	return peak, first, all
}

// peakHeap returns the maximum heap in use while do runs.
func peakHeap(do func()) uint64 {
	done := make(chan struct{})
	measured := make(chan uint64)
	go func() {
		var most uint64
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
			select {
			case <-done:
				measured <- most
				return
			case <-tick.C:
			}
		}
	}()
	do()
	close(done)
	return <-measured
}

const rowsOfMemoryTest = 100_000

// Memory use does not depend on the number of rows of an upload or download, and a download starts long before
// its last row is read. The test runs alone, because other tests share the heap.
func TestMailing_Memory(t *testing.T) { //nolint:paralleltest // see above
	g := start(t, nil)
	runtime.GC()
	small, few := uploadRows(t, g, 1000)
	runtime.GC()
	large, many := uploadRows(t, g, rowsOfMemoryTest)
	t.Logf("heap in use: %d KiB for 1,000 rows, %d KiB for %d", few>>10, many>>10, rowsOfMemoryTest)
	if many > few+32<<20 {
		t.Errorf("%d MiB for 1,000 rows, %d MiB for %d", few>>20, many>>20, rowsOfMemoryTest)
	}
	few, _, _ = downloadRows(t, g, small, 1000)
	many, first, all := downloadRows(t, g, large, rowsOfMemoryTest)
	t.Logf("heap in use: %d KiB for a download of 1,000 rows, %d KiB for %d: first byte %s, all %s", few>>10, many>>10, rowsOfMemoryTest, first, all)
	if many > few+32<<20 {
		t.Errorf("%d MiB for a download of 1,000 rows, %d MiB for %d", few>>20, many>>20, rowsOfMemoryTest)
	}
	if first > all/4 {
		t.Errorf("the first of %d rows came after %s, the last after %s", rowsOfMemoryTest, first, all)
	}
}
