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

// controlAPI serves the endpoints below /sim, with which tests control the simulator.
type controlAPI struct{ server *Server }

func (c controlAPI) addRoutes(m *http.ServeMux) {
	m.HandleFunc("POST /sim/faults", c.postFault)
	m.HandleFunc("GET /sim/faults", c.listFaults)
	m.HandleFunc("DELETE /sim/faults", c.deleteFaults)
	m.HandleFunc("GET /sim/events", c.listEvents)
	m.HandleFunc("PUT /sim/events", c.putEvents)
	m.HandleFunc("POST /sim/events/rules", c.postEventRule)
	m.HandleFunc("DELETE /sim/events/rules", c.deleteEventRules)
	m.HandleFunc("PUT /sim/settings", c.putSettings)
	m.HandleFunc("GET /sim/settings", c.showSettings)
	m.HandleFunc("GET /sim/ledger", c.showLedger)
	m.HandleFunc("GET /sim/ledger/summary", c.showSummary)
	m.HandleFunc("POST /sim/reset", c.postReset)
}

func (c controlAPI) postFault(w http.ResponseWriter, r *http.Request) {
	var rule Rule
	err := decodeControl(io.LimitReader(r.Body, maxControlBody), &rule)
	if err == nil {
		err = c.server.Inject(rule)
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

func (c controlAPI) listFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, faultList{Rules: c.server.Rules(), Table: Faults()})
}

func (c controlAPI) deleteFaults(w http.ResponseWriter, _ *http.Request) {
	c.server.ClearFaults()
	w.WriteHeader(http.StatusNoContent)
}

// putSettings changes the settings in the body and keeps the others.
func (c controlAPI) putSettings(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxControlBody))
	if err == nil {
		err = c.server.changeSettings(func(st *Settings) error { return decodeControl(bytes.NewReader(text), st) })
	}
	if err != nil {
		badControl(w, err)
		return
	}
	writeJSON(w, http.StatusOK, c.server.Settings())
}

func (c controlAPI) showSettings(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, c.server.Settings())
}

func (c controlAPI) postReset(w http.ResponseWriter, _ *http.Request) {
	c.server.Reset()
	w.WriteHeader(http.StatusNoContent)
}

// showLedger writes one entry per line: a response with 200,000 entries must not be built in memory
// first.
func (c controlAPI) showLedger(w http.ResponseWriter, r *http.Request) {
	params := r.URL.Query()
	since, err := parseSince(params)
	if err != nil {
		badControl(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "[")
	enc := json.NewEncoder(w)
	for i, rec := range c.server.find(ledgerQuery{outboxID: params.Get("outboxId"), to: params.Get("to"), since: since}) {
		if i > 0 {
			_, _ = io.WriteString(w, ",")
		}
		if enc.Encode(rec.entry()) != nil {
			return // the client has disconnected
		}
	}
	_, _ = io.WriteString(w, "]\n")
}

func (c controlAPI) showSummary(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, c.server.Summary())
}

// eventList is the response of GET /sim/events.
type eventList struct {
	Publication Publication `json:"publication"`
	Counts      EventCounts `json:"counts"`
	Rules       []EventRule `json:"rules"`
	Kinds       []string    `json:"kinds"`
}

func (c controlAPI) listEvents(w http.ResponseWriter, _ *http.Request) {
	list := eventList{Counts: c.server.Events(), Kinds: EventKinds()}
	if p := c.server.currentPublisher(); p != nil {
		list.Publication = p.topic.Publication
	}
	c.server.mu.Lock()
	list.Rules = append([]EventRule{}, c.server.eventRules...)
	c.server.mu.Unlock()
	writeJSON(w, http.StatusOK, list)
}

func (c controlAPI) putEvents(w http.ResponseWriter, r *http.Request) {
	var p Publication
	err := decodeControl(io.LimitReader(r.Body, maxControlBody), &p)
	if err == nil {
		err = c.server.Publish(p)
	}
	if err != nil {
		badControl(w, err)
		return
	}
	c.listEvents(w, r)
}

func (c controlAPI) postEventRule(w http.ResponseWriter, r *http.Request) {
	var rule EventRule
	err := decodeControl(io.LimitReader(r.Body, maxControlBody), &rule)
	if err == nil {
		err = c.server.InjectEvents(rule)
	}
	if err != nil {
		badControl(w, err)
		return
	}
	writeJSON(w, http.StatusCreated, rule)
}

func (c controlAPI) deleteEventRules(w http.ResponseWriter, _ *http.Request) {
	c.server.ClearEventRules()
	w.WriteHeader(http.StatusNoContent)
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
