package client_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/client"
)

type encoded struct {
	Subject  string            `json:"subject"`
	Priority int               `json:"priority,omitempty"`
	AutoText *bool             `json:"autoText,omitempty"`
	SendAt   *time.Time        `json:"sendAt,omitempty"`
	Tags     []string          `json:"tags"`
	Headers  map[string]string `json:"headers,omitempty"`
	Content  []byte            `json:"content,omitempty"`
	Raw      json.RawMessage   `json:"raw,omitempty"`
}

func TestEncode_AsEncodingJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.FixedZone("", -3*3600))
	for _, v := range []any{
		encoded{},
		encoded{Subject: "Olá <b>&\u2028\ufffd", AutoText: new(bool), SendAt: &at, Tags: []string{"a"}, Content: []byte{0xff}},
		encoded{Headers: map[string]string{"b": "2", "a": "1"}, Raw: json.RawMessage(`{"a": 1, "a": "\ud800"}`)},
		json.RawMessage("{\"nome\": \"Jos\xe9\"}"),
		map[string]any{"emails": []json.RawMessage{json.RawMessage(`{"x": 1.50}`)}},
	} {
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := client.Encode(v); err != nil || string(got) != string(want) {
			t.Errorf("%+v: %s, %v, want %s", v, got, err, want)
		}
	}
}

func TestEncode_NotUTF8(t *testing.T) {
	t.Parallel()
	bad := "Ol\xe1"
	for name, v := range map[string]any{
		"field":       encoded{Subject: bad},
		"list":        encoded{Tags: []string{"a", bad}},
		"map's value": encoded{Headers: map[string]string{"X-A": bad}},
		"map's key":   encoded{Headers: map[string]string{bad: "x"}},
		"pointer":     map[string]any{"note": &bad},
		"nested":      map[string]any{"attachments": []map[string]string{{"filename": bad}}},
	} {
		body, err := client.Encode(v)
		var invalid *client.TextError
		if !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), `"Ol\xe1" is not UTF-8`) {
			t.Errorf("%s: %s, %v", name, body, err)
		}
	}
}
