package httpapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/api/internal/httpapi/sending"
	"email-gateway/shared/blob"
	filestore "email-gateway/shared/store/file"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
)

// Contents that look like their types.
const (
	pdf = "%PDF-1.7\n1 0 obj <</Type /Catalog>> endobj\ntrailer <</Root 1 0 R>>\n%%EOF\n"
	xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<nfeProc><NFe/></nfeProc>\n"
	png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
	exe = "MZ\x90\x00\x03\x00\x00\x00\x04\x00\x00\x00\xff\xff\x00\x00\xb8\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00"
)

func attached(name, contentType, content string) fields {
	return fields{"filename": name, "contentType": contentType, "content": base64.StdEncoding.EncodeToString([]byte(content))}
}

func withFiles(files ...fields) func(fields) { return with("attachments", files) }

// uploadFile posts a file.
func (g *gateway) uploadFile(tb testing.TB, content string) reply {
	tb.Helper()
	return g.do(tb, call{Method: http.MethodPost, Path: "/v1/files", Body: content, Header: map[string]string{"Content-Type": "application/octet-stream"}})
}

// fileContent decrypts a stored file.
func fileContent(tb testing.TB, g *gateway, id string) string {
	tb.Helper()
	bucket, err := blob.Open(tb.Context(), g.Storage.url(), blob.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = bucket.Close() }()
	key := uuid.MustParse(id)
	stored, err := bucket.Get(tb.Context(), filestore.Key(g.Company, key))
	if err != nil {
		tb.Fatal(err)
	}
	defer stored.Close()
	plain, err := g.Ring.DecryptReader(stored, filestore.Binding(g.Company, key))
	if err != nil {
		tb.Fatal(err)
	}
	all, err := io.ReadAll(plain)
	if err != nil {
		tb.Fatal(err)
	}
	return string(all)
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func TestAttachments_InlineAndByID(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	r := g.uploadFile(t, pdf)
	if r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	id, _ := r.json(t)["id"].(string)
	if again := g.uploadFile(t, pdf); again.Status != http.StatusOK || again.json(t)["id"] != id {
		t.Errorf("the same content again: %d %s", again.Status, again.Body)
	}
	mail := g.accept(t, emailBody(withFiles(
		fields{"filename": "Fatura março.pdf", "contentType": "application/pdf", "fileId": id}, attached("nfe.xml", "application/xml", xml),
	)))
	shown, _ := g.show(t, mail)["attachments"].([]any)
	if len(shown) != 2 {
		t.Fatalf("attachments: %v", shown)
	}
	for i, want := range []struct{ name, kind, content string }{{"Fatura março.pdf", "application/pdf", pdf}, {"nfe.xml", "application/xml", xml}} {
		got, _ := shown[i].(map[string]any)
		if got["filename"] != want.name || got["contentType"] != want.kind || got["sha256"] != sum(want.content) || got["size"] != float64(len(want.content)) {
			t.Errorf("attachment %d: %v", i, got)
		}
		if got := fileContent(t, g, got["fileId"].(string)); got != want.content {
			t.Errorf("stored %q", got)
		}
	}
	if n := g.Storage.objects(t); n != 2 {
		t.Errorf("%d stored files, want 2", n)
	}
	page := g.do(t, call{Path: "/v1/files?limit=1"}).json(t)
	if list, _ := page["files"].([]any); len(list) != 1 || page["nextCursor"] == nil {
		t.Errorf("list: %v", page)
	}
	if r := g.do(t, call{Path: "/v1/files/" + id}); r.Status != http.StatusOK || r.json(t)["sha256"] != sum(pdf) {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	other := g.newKey(t, g.Database.Company(t), nil).String()
	if r := g.do(t, call{Path: "/v1/files/" + id, Key: other}); r.Status != http.StatusNotFound {
		t.Errorf("reading the file of another company: %d %s, want 404", r.Status, r.Body)
	}
	body := emailBody(withFiles(fields{"filename": "a.pdf", "contentType": "application/pdf", "fileId": id}))
	if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: body, Key: other}); r.Status != http.StatusUnprocessableEntity || r.problem(t).Errors[0].Code != "FILE_NOT_FOUND" {
		t.Errorf("attaching the file of another company: %d %s", r.Status, r.Body)
	}
	// The same content uploaded by another company is stored as another file.
	if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/files", Body: pdf, Key: other, Header: map[string]string{"Content-Type": "application/pdf"}}); r.Status != http.StatusCreated || r.json(t)["id"] == id {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// A content that the storage has lost is stored again when the company sends it again, under its id: emails that attach
// it by id, and those that have failed and are sent again, have it too.
func TestAttachments_LostContent(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id, _ := g.uploadFile(t, pdf).json(t)["id"].(string)
	lost := filestore.Key(g.Company, uuid.MustParse(id))
	for name, again := range map[string]func(){
		"upload": func() {
			if r := g.uploadFile(t, pdf); r.Status != http.StatusOK || r.json(t)["id"] != id {
				t.Errorf("%d %s", r.Status, r.Body)
			}
		},
		"send": func() { g.accept(t, emailBody(withFiles(attached("a.pdf", "application/pdf", pdf)))) },
	} {
		if err := os.Remove(filepath.Join(string(g.Storage), lost)); err != nil {
			t.Fatal(err)
		}
		if err := filestore.New(g.Database.Store.DB()).MarkMissing(t.Context(), g.Company, uuid.MustParse(id)); err != nil { // a worker does
			t.Fatal(err)
		}
		again()
		if got := fileContent(t, g, id); got != pdf {
			t.Errorf("%s: stored %q", name, got)
		}
		if n := g.Storage.objects(t); n != 1 {
			t.Errorf("%s: %d stored files, want 1", name, n)
		}
	}
}

// deletingBucket deletes rows when it has stored an object.
type deletingBucket struct {
	httpapi.Bucket
	deleted func()
}

func (b deletingBucket) Put(ctx context.Context, key string, r io.Reader) error {
	defer b.deleted()
	return b.Bucket.Put(ctx, key, r)
}

// The row of a lost content is deleted while the content is stored again: it is stored as a new file.
func TestAttachments_LostContentDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	var g *gateway
	g = start(t, func(p *httpapi.Params) {
		p.Bucket = deletingBucket{p.Bucket, sync.OnceFunc(func() { g.Run(t, `DELETE FROM stored_files`) })}
	})
	lost := uuid.New()
	hash := sha256.Sum256([]byte(pdf))
	g.Run(t, `INSERT INTO stored_files (id, company_id, sha256, size, bytes, media_type, missing_since) VALUES ($1, $2, $3, $4, 1000, 'application/pdf', now())`,
		lost, g.Company, hash[:], len(pdf))
	r := g.uploadFile(t, pdf)
	id, _ := r.json(t)["id"].(string)
	if r.Status != http.StatusCreated || id == lost.String() {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if got := fileContent(t, g, id); got != pdf || g.Storage.objects(t) != 1 {
		t.Errorf("%d stored files, one is %q", g.Storage.objects(t), got)
	}
}

func TestAttachments_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.AttachmentsMax = 1 << 20 })
	before := g.rows(t)
	eleven := make([]fields, 11)
	for i := range eleven {
		eleven[i] = attached(fmt.Sprintf("%d.pdf", i), "application/pdf", pdf)
	}
	one := func(change func(fields)) []fields {
		f := attached("a.pdf", "application/pdf", pdf)
		change(f)
		return []fields{f}
	}
	big := pdf + strings.Repeat("x", 700<<10)
	for name, tt := range map[string]struct {
		files       []fields
		html        string
		field, code string
	}{
		"11 files":            {files: eleven, field: "attachments", code: "TOO_MANY"},
		".exe":                {files: one(with("filename", "setup.exe")), field: "attachments[0].filename", code: "BLOCKED_EXTENSION"},
		".JS in capitals":     {files: one(with("filename", "a.pdf.JS")), field: "attachments[0].filename", code: "BLOCKED_EXTENSION"},
		"path":                {files: one(with("filename", "../a.pdf")), field: "attachments[0].filename", code: "INVALID_FILENAME"},
		"windows path":        {files: one(with("filename", `C:\a.pdf`)), field: "attachments[0].filename", code: "INVALID_FILENAME"},
		"line break":          {files: one(with("filename", "a\r\n.pdf")), field: "attachments[0].filename", code: "INVALID_FILENAME"},
		"bidi override":       {files: one(with("filename", "a\u202efdp.exe.pdf")), field: "attachments[0].filename", code: "INVALID_FILENAME"},
		"long name":           {files: one(with("filename", strings.Repeat("a", 252)+".pdf")), field: "attachments[0].filename", code: "TOO_LONG"},
		"no name":             {files: one(with("filename", " ")), field: "attachments[0].filename", code: "REQUIRED"},
		"same names":          {files: []fields{attached("a.pdf", "application/pdf", pdf), attached("A.pdf", "application/pdf", pdf)}, field: "attachments[1].filename", code: "DUPLICATE_FILENAME"},
		"PNG as PDF":          {files: []fields{attached("a.pdf", "application/pdf", png)}, field: "attachments[0].contentType", code: "TYPE_MISMATCH"},
		"text as PDF":         {files: []fields{attached("a.pdf", "application/pdf", "hello")}, field: "attachments[0].contentType", code: "TYPE_MISMATCH"},
		"program as PDF":      {files: []fields{attached("a.pdf", "application/pdf", exe)}, field: "attachments[0].contentType", code: "TYPE_MISMATCH"},
		"program as unknown":  {files: []fields{attached("a.bin", "application/octet-stream", exe)}, field: "attachments[0].contentType", code: "TYPE_MISMATCH"},
		"no media type":       {files: one(with("contentType", "pdf")), field: "attachments[0].contentType", code: "INVALID_TYPE"},
		"message type":        {files: one(with("contentType", "message/rfc822")), field: "attachments[0].contentType", code: "INVALID_TYPE"},
		"no content":          {files: []fields{{"filename": "a.pdf", "contentType": "application/pdf"}}, field: "attachments[0].content", code: "REQUIRED"},
		"content and fileId":  {files: one(with("fileId", uuid.NewString())), field: "attachments[0].fileId", code: "NOT_ALLOWED"},
		"unknown file":        {files: []fields{{"filename": "a.pdf", "contentType": "application/pdf", "fileId": uuid.NewString()}}, field: "attachments[0].fileId", code: "FILE_NOT_FOUND"},
		"not an id":           {files: []fields{{"filename": "a.pdf", "contentType": "application/pdf", "fileId": "x"}}, field: "attachments[0].fileId", code: "INVALID_ID"},
		"not base64":          {files: one(with("content", "%%%%")), field: "attachments[0].content", code: "INVALID_CONTENT"},
		"half a group":        {files: one(with("content", "JVBER")), field: "attachments[0].content", code: "INVALID_CONTENT"},
		"base64url":           {files: one(with("content", "JVBE-_")), field: "attachments[0].content", code: "INVALID_CONTENT"},
		"empty":               {files: one(with("content", "")), field: "attachments[0].content", code: "INVALID_CONTENT"},
		"forged placeholder":  {files: one(with("content", "sha256:"+sum(pdf))), field: "attachments[0].content", code: "INVALID_CONTENT"},
		"number":              {files: one(with("content", 5)), field: "attachments[0].content", code: "WRONG_TYPE"},
		"too large together":  {files: []fields{attached("a.pdf", "application/pdf", big), attached("b.pdf", "application/pdf", big+"y")}, field: "attachments[1].content", code: "TOO_LARGE"},
		"contentId":           {files: one(with("contentId", "a b")), field: "attachments[0].contentId", code: "INVALID_CONTENT_ID"},
		"quote in contentId":  {files: one(with("contentId", "it's")), field: "attachments[0].contentId", code: "INVALID_CONTENT_ID"},
		"long contentId":      {files: one(with("contentId", strings.Repeat("a", 79))), field: "attachments[0].contentId", code: "TOO_LONG"},
		"inline without id":   {files: one(with("disposition", "inline")), field: "attachments[0].contentId", code: "REQUIRED"},
		"unknown disposition": {files: one(with("disposition", "ATTACHMENT")), field: "attachments[0].disposition", code: "NOT_ALLOWED"},
		"unknown cid":         {files: one(func(fields) {}), html: `<p>a</p><img src="CID:logo">`, field: "html", code: "UNKNOWN_CONTENT_ID"},
		"cid in a style":      {html: `<p style="background:url('cid:bg')">a</p>`, field: "html", code: "UNKNOWN_CONTENT_ID"},
		"unknown field":       {files: one(with("fileName", "a")), field: "attachments[0].fileName", code: "UNKNOWN_FIELD"},
	} {
		t.Run(name, func(t *testing.T) {
			r := g.send(t, emailBody(func(f fields) {
				if tt.files != nil {
					f["attachments"] = tt.files
				}
				if tt.html != "" {
					f["html"] = tt.html
				}
			}))
			if r.Status != http.StatusUnprocessableEntity {
				t.Fatalf("%d %s", r.Status, r.Body)
			}
			for _, fault := range r.problem(t).Errors {
				if fault.Field == tt.field && fault.Code == tt.code {
					return
				}
			}
			t.Errorf("the response does not report %s for %s: %s", tt.code, tt.field, r.Body)
		})
	}
	if r := g.uploadFile(t, exe); r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "TYPE_MISMATCH" {
		t.Errorf("uploaded program: %d %s", r.Status, r.Body)
	}
	if r := g.uploadFile(t, ""); r.Status != http.StatusUnprocessableEntity || r.problem(t).Code != "EMPTY_FILE" {
		t.Errorf("empty file: %d %s", r.Status, r.Body)
	}
	if r := g.uploadFile(t, strings.Repeat("x", 1<<20+1)); r.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("large file: %d %s", r.Status, r.Body)
	}
	if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/files", Reader: bytes.NewReader(make([]byte, 1<<20+1)), Header: map[string]string{"Content-Type": ""}}); r.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("large file in chunks: %d %s", r.Status, r.Body)
	}
	if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/files", Body: "a=b", Header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}); r.Status != http.StatusUnsupportedMediaType {
		t.Errorf("form: %d %s", r.Status, r.Body)
	}
	if now := g.rows(t); now != before {
		t.Errorf("%d rows, before %d", now, before)
	}
}

func TestAttachments_Types(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	zip := "PK\x03\x04\x14\x00\x00\x00\x00\x00" + strings.Repeat("\x00", 40)
	for _, f := range []fields{
		attached("a.pdf", "application/pdf", pdf), attached("a.pdf", "application/octet-stream", pdf), attached("a.xml", "text/xml; charset=utf-8", xml),
		attached("a.xml", "application/xml", xml), attached("a.csv", "text/csv", "a;b\n1;2\n"), attached("a.json", "application/json", `{"a":1}`),
		attached("a.txt", "text/plain", "olá"), attached("a.ics", "text/calendar", "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"),
		attached("a.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", zip), attached("a.zip", "application/zip", zip),
		attached("a.p7s", "application/pkcs7-signature", "\x30\x82\x01\x02\x06\x09"), attached("a.ret", "text/x-cnab240", "03300000         2"),
		attached("a.jpg", "image/jpg", "\xff\xd8\xff\xe0\x00\x10JFIF\x00"), attached("a.csv", "application/csv", "a,b\n1,2\n"),
	} {
		if r := g.send(t, emailBody(withFiles(f))); r.Status != http.StatusAccepted {
			t.Errorf("%v as %v: %d %s", f["filename"], f["contentType"], r.Status, r.Body)
		}
	}
	inline := attached("logo.png", "image/png", png)
	inline["contentId"] = "logo@acme"
	id := g.accept(t, emailBody(func(f fields) {
		withFiles(inline)(f)
		f["html"] = `<p>a</p><img alt="cid:nothing" src="cid:logo%40acme">`
	}))
	shown, _ := g.show(t, id)["attachments"].([]any)
	if got, _ := shown[0].(map[string]any); got["disposition"] != "inline" || got["contentId"] != "logo@acme" {
		t.Errorf("%v", got)
	}
}

// An attachment without a type gets that of its content, a stored file too.
func TestAttachments_WithoutType(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	untyped := func(name, content string) fields {
		f := attached(name, "", content)
		delete(f, "contentType")
		return f
	}
	stored, _ := g.uploadFile(t, png).json(t)["id"].(string)
	message := "From: a@example.com\r\nTo: b@example.com\r\nSubject: a\r\nMessage-ID: <a@example.com>\r\n\r\na"
	id := g.accept(t, emailBody(withFiles(
		untyped("a.pdf", pdf), untyped("a.csv", "a,b\n1,2\n"), attached("a.xml", " ", xml), untyped("a.eml", message), fields{"filename": "a.png", "fileId": stored},
	)))
	shown, _ := g.show(t, id)["attachments"].([]any)
	want := []string{"application/pdf", "text/csv", "text/xml; charset=UTF-8", "application/octet-stream", "image/png"}
	var got []string
	for _, one := range shown {
		got = append(got, one.(map[string]any)["contentType"].(string))
	}
	if !slices.Equal(got, want) {
		t.Errorf("types %q, want %q", got, want)
	}
	r := g.send(t, emailBody(withFiles(untyped("a.bin", exe))))
	if r.Status != http.StatusUnprocessableEntity || r.problem(t).Errors[0].Code != "TYPE_MISMATCH" {
		t.Errorf("program: %d %s", r.Status, r.Body)
	}
}

// TestAttachments_LargeBody sends bodies that are too large to be received in memory.
func TestAttachments_LargeBody(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	content := pdf + strings.Repeat("0123456789abcdef", 2<<16) // 2 MiB, 2.7 in base64
	body := emailBody(withFiles(attached("a.pdf", "application/pdf", content)))
	id := g.accept(t, body)
	shown, _ := g.show(t, id)["attachments"].([]any)
	if got, _ := shown[0].(map[string]any); got["sha256"] != sum(content) {
		t.Errorf("%v", got)
	}
	chunked := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Reader: io.MultiReader(strings.NewReader(body))})
	if chunked.Status != http.StatusAccepted {
		t.Errorf("in chunks: %d %s", chunked.Status, chunked.Body)
	}
	if n := g.Storage.objects(t); n != 1 {
		t.Errorf("%d stored files, want 1", n)
	}
	without := emailBody(func(f fields) { f["x"] = strings.Repeat("x", 3<<20) })
	if r := g.send(t, without); r.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("without attachments: %d %s", r.Status, r.Body)
	}
	if r := g.send(t, body[:len(body)-1]); r.Status != http.StatusBadRequest || r.problem(t).Code != "MALFORMED_JSON" {
		t.Errorf("without its end: %d %s", r.Status, r.Body)
	}
	over := emailBody(withFiles(attached("a.pdf", "application/pdf", strings.Repeat("x", 17<<20))))
	if r := g.send(t, over); r.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %d %s", r.Status, r.Body)
	}
}

// A body that is received on disk gets the same answer as a small one.
func TestAttachments_LargeBodyIsCheckedLikeASmallOne(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	before := g.rows(t)
	document := func(content, more string) string {
		body := emailBody(withFiles(fields{"filename": "a.txt", "contentType": "text/plain", "content": "CONTENT"}))
		return strings.Replace(strings.Replace(body, "CONTENT", content, 1), "]", more+"]", 1)
	}
	position := regexp.MustCompile(`( in \S+)? \(after byte \d+\)`)
	space := strings.Repeat(" ", 2<<20)
	large := `,{"filename":"b.txt","contentType":"text/plain","content":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("olá\n"), 1<<19)) + `"}`
	for name, tt := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"line break":               {document("QUJD\nREVG", ""), 400, "MALFORMED_JSON"},
		"tab":                      {document("QUJD\tREVG", ""), 400, "MALFORMED_JSON"},
		"U+0001":                   {document("QUJD\x01", ""), 400, "MALFORMED_JSON"},
		"unknown escape":           {document(`QUJD\qREVG`, ""), 400, "MALFORMED_JSON"},
		"unknown escape and quote": {document(`QUJD\q"REVG`, ""), 400, "MALFORMED_JSON"},
		"escaped line break":       {document("QUJD\\\nREVG", ""), 400, "MALFORMED_JSON"},
		"escape of two digits":     {document(`QUJD\u41`, ""), 400, "MALFORMED_JSON"},
		"invalid UTF-8":            {document("QUJD\xff", ""), 400, "MALFORMED_JSON"},
		"quote":                    {document(`QUJD"REVG`, ""), 400, "MALFORMED_JSON"},
		"two numbers":              {strings.Replace(document("QUJD", ""), "{", `{"priority": 1 0,`, 1), 400, "MALFORMED_JSON"},
		"no end":                   {strings.TrimSuffix(document("QUJD", ""), "}"), 400, "MALFORMED_JSON"},
		"two documents":            {document("QUJD", "") + "{}", 400, "MALFORMED_JSON"},
		"escaped backspace":        {document(`QU\bJD`, ""), 422, "VALIDATION_FAILED"},
		"character beyond ASCII":   {document("QUJDé", ""), 422, "VALIDATION_FAILED"},
		"half a surrogate pair":    {document(`QUJD\ud83d`, ""), 422, "VALIDATION_FAILED"},
	} {
		small := g.send(t, tt.body)
		want := small.problem(t)
		if small.Status != tt.status || want.Code != tt.code {
			t.Errorf("%s: %d %s", name, small.Status, small.Body)
		}
		for padding, body := range map[string]string{
			"white space":     strings.Replace(tt.body, "{", "{"+space, 1),
			"another content": strings.Replace(tt.body, "]", large+"]", 1),
		} {
			r := g.send(t, body)
			got := r.problem(t)
			if r.Status != small.Status || got.Code != want.Code || got.Detail != position.ReplaceAllString(want.Detail, "") || fmt.Sprint(got.Errors) != fmt.Sprint(want.Errors) {
				t.Errorf("%s with %s: %d %.500s, want %s", name, padding, r.Status, r.Body, small.Body)
			}
		}
	}
	for _, content := range []string{`QUJD\nREVG\r\n`, `\u0051UJ\u0044`} {
		for _, more := range []string{"", large} {
			if r := g.send(t, document(content, more)); r.Status != http.StatusAccepted {
				t.Errorf("%s: %d %s", content, r.Status, r.Body)
			}
			before++
		}
	}
	if n := g.rows(t); n != before {
		t.Errorf("%d rows, want %d", n, before)
	}
}

func TestAttachments_Idempotency(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	key := map[string]string{"Idempotency-Key": "invoice-1"}
	post := func(body string) reply {
		return g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: body, Header: key})
	}
	f := attached("a.xml", "application/xml", xml)
	first := post(emailBody(withFiles(f)))
	if first.Status != http.StatusAccepted {
		t.Fatalf("%d %s", first.Status, first.Body)
	}
	// The same content in lines, with escapes and without padding.
	encoded, _ := f["content"].(string)
	text, _ := json.Marshal(strings.TrimRight(encoded[:40]+"\r\n"+encoded[40:], "="))
	f["content"] = json.RawMessage(strings.ReplaceAll(strings.ReplaceAll(string(text), "/", `\/`), "P", `\u0050`))
	if again := post(emailBody(withFiles(f))); again.Status != http.StatusAccepted || again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", again.Status, again.Body)
	}
	if other := post(emailBody(withFiles(attached("a.xml", "application/xml", xml+" ")))); other.Status != http.StatusUnprocessableEntity || other.problem(t).Code != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("another content: %d %s", other.Status, other.Body)
	}
	about := func(f fields) {
		f["aggregate"] = fields{"type": "invoice", "id": "1", "eventType": "ISSUED"}
		withFiles(attached("a.pdf", "application/pdf", pdf))(f)
	}
	if id := g.accept(t, emailBody(about)); g.accept(t, emailBody(about)) != id {
		t.Error("a second email was accepted for the same aggregate")
	}
}

// downBucket is a storage that cannot be reached.
type downBucket struct{ httpapi.Bucket }

func (downBucket) Put(context.Context, string, io.Reader) error { return blob.ErrUnavailable }

func TestAttachments_StorageDown(t *testing.T) {
	t.Parallel()
	g := start(t, func(p *httpapi.Params) { p.Bucket = downBucket{p.Bucket} })
	before := g.rows(t)
	body := emailBody(withFiles(attached("a.pdf", "application/pdf", pdf)))
	if r := g.send(t, body); r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "STORAGE_UNAVAILABLE" || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.uploadFile(t, pdf); r.Status != http.StatusServiceUnavailable || r.problem(t).Code != "STORAGE_UNAVAILABLE" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if now := g.rows(t); now != before {
		t.Errorf("%d rows, before %d", now, before)
	}
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM stored_files`); n != 0 {
		t.Errorf("%d files", n)
	}
	g.accept(t, emailBody(nil))
}

func TestAttachments_Quota(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	limit := int64(1000)
	if err := g.Store.SetQuotas(t.Context(), storetest.Operator(), g.Company, map[quota.Quota]*int64{quota.StoredFileBytes: &limit}); err != nil {
		t.Fatal(err)
	}
	g.accept(t, emailBody(withFiles(attached("a.pdf", "application/pdf", pdf))))
	if r := g.uploadFile(t, strings.Repeat("x", 900)); r.Status != http.StatusTooManyRequests || r.problem(t).Code != "QUOTA_EXCEEDED" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	g.accept(t, emailBody(withFiles(attached("b.pdf", "application/pdf", pdf))))
	if n := g.Storage.objects(t); n != 1 {
		t.Errorf("%d stored files: the object of a rejected file was not deleted", n)
	}
}

// erasingAccepter deletes files between their storing and the commit that attaches them, as an erasure may do.
type erasingAccepter struct {
	sending.Accepter
	erase func()
}

func (a erasingAccepter) Accept(ctx context.Context, e outbox.NewEmail) error {
	a.erase()
	return a.Accepter.Accept(ctx, e)
}

func TestAttachments_FileErasedMeanwhile(t *testing.T) {
	t.Parallel()
	times, erase := 0, `DELETE FROM stored_files`
	var g *gateway
	g = start(t, func(p *httpapi.Params) {
		p.Accepter = erasingAccepter{p.Accepter, func() {
			if times++; times == 1 {
				g.Run(t, erase)
			}
		}}
	})
	id := g.accept(t, emailBody(withFiles(attached("a.pdf", "application/pdf", pdf))))
	if shown, _ := g.show(t, id)["attachments"].([]any); len(shown) != 1 || times != 2 {
		t.Errorf("%v after %d tries", shown, times)
	}
	stored := g.uploadFile(t, xml).json(t)["id"]
	erase = `DELETE FROM stored_files f WHERE NOT EXISTS (SELECT FROM attachments a WHERE a.file_id = f.id)`
	times = 0
	r := g.send(t, emailBody(withFiles(fields{"filename": "a.xml", "contentType": "text/xml", "fileId": stored})))
	if r.Status != http.StatusUnprocessableEntity || r.problem(t).Errors[0].Code != "FILE_NOT_FOUND" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
