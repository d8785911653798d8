package sessim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxControlBody is larger than any rule or setting.
const maxControlBody = 64 << 10

func (s *Server) postFault(w http.ResponseWriter, r *http.Request) {
	var rule Rule
	err := decodeControl(io.LimitReader(r.Body, maxControlBody), &rule)
	if err == nil {
		err = s.Inject(rule)
	}
	if err != nil {
		badControl(w, err)
		return
	}
	writeJSON(w, http.StatusCreated, rule)
}

// faultList is the response of GET /sim/faults: the rules, and the table of all faults.
type faultList struct {
	Rules []Rule  `json:"rules"`
	Table []Fault `json:"table"`
}

func (s *Server) listFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, faultList{Rules: s.Rules(), Table: Faults()})
}

func (s *Server) deleteFaults(w http.ResponseWriter, _ *http.Request) {
	s.ClearFaults()
	w.WriteHeader(http.StatusNoContent)
}

// putSettings changes the settings in the body and keeps the others.
func (s *Server) putSettings(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxControlBody))
	if err == nil {
		err = s.changeSettings(func(st *Settings) error { return decodeControl(bytes.NewReader(text), st) })
	}
	if err != nil {
		badControl(w, err)
		return
	}
	writeJSON(w, http.StatusOK, s.Settings())
}

func (s *Server) showSettings(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Settings())
}

func (s *Server) postReset(w http.ResponseWriter, _ *http.Request) {
	s.Reset()
	w.WriteHeader(http.StatusNoContent)
}

// showLedger writes one entry per line: a response with 200,000 entries must not be built in memory
// first.
func (s *Server) showLedger(w http.ResponseWriter, r *http.Request) {
	params := r.URL.Query()
	since, err := parseSince(params)
	if err != nil {
		badControl(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "[")
	enc := json.NewEncoder(w)
	for i, rec := range s.find(ledgerQuery{outboxID: params.Get("outboxId"), to: params.Get("to"), since: since}) {
		if i > 0 {
			_, _ = io.WriteString(w, ",")
		}
		if enc.Encode(rec.entry()) != nil {
			return // the client has disconnected
		}
	}
	_, _ = io.WriteString(w, "]\n")
}

func (s *Server) showSummary(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Summary())
}

// decodeControl refuses unknown fields: a misspelt one would silently have no effect.
func decodeControl(body io.Reader, into any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("decode body: %w", err)
	}
	return nil
}

func badControl(w http.ResponseWriter, err error) {
	writeJSON(w, http.StatusBadRequest, map[string]string{"message": err.Error()})
}

// parseSince reads the parameter since: RFC 3339 or Unix seconds.
func parseSince(params url.Values) (time.Time, error) {
	text := params.Get("since")
	if text == "" {
		return time.Time{}, nil
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return time.UnixMicro(int64(seconds * 1e6)), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse since: %w", err)
	}
	return t, nil
}

// parseLimit reads the parameter limit.
func parseLimit(params url.Values, otherwise int) (int, error) {
	text := params.Get("limit")
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("parse limit: %q is not a positive number", text)
	}
	return n, nil
}
