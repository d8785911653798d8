package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

// The program accepts a mailing without connecting to RabbitMQ: it is enough that RABBITMQ_URL is
// set.
func TestRun_AcceptsMailings(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	_, key := newKey(t, d)
	storage := filepath.Join(t.TempDir(), "files")
	addr, stop := running(t, environ(t, d.URL, "RABBITMQ_URL=amqp://127.0.0.1:1/", "STORAGE_URL=file://"+storage,
		"UNSUBSCRIBE_KEY="+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{3}, 32))))
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "lista.csv")
	if err == nil {
		_, err = io.WriteString(file, "email;nome\nana@example.com;Ana\n")
	}
	for name, value := range map[string]string{"subject": "Oi {{nome}}", "html": `<a href="{{unsubscribe_url}}">sair</a>`} {
		if err == nil {
			err = form.WriteField(name, value)
		}
	}
	if err = errors.Join(err, form.Close()); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/mailings", &body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", form.FormDataContentType())
	request.Header.Set("X-API-Key", key)
	status, text := answered(t, request)
	if status != http.StatusAccepted || !strings.Contains(text, `"accepted":1`) {
		t.Errorf("%d %s", status, text)
	}
	if files, err := os.ReadDir(storage); err != nil || len(files) != 2 { // mailings, and the marker of the installation
		t.Errorf("%v %v", files, err)
	}
	health, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Storage      struct{ Status string }
		TokenManager struct {
			Status          string
			AvailableTokens int
		}
	}
	waittest.Until(t, "1,000 tokens are ready", func() bool {
		_, text := answered(t, health)
		return json.Unmarshal([]byte(text), &answer) == nil && answer.TokenManager.AvailableTokens == 1000
	})
	if answer.Storage.Status != "accessible" || answer.TokenManager.Status != "initialized" {
		t.Errorf("%+v", answer)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func answered(t *testing.T, request *http.Request) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 20 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
