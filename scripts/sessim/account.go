package sessim

import (
	"net/http"
)

// getAccountOutput is GetAccount's response, with the fields that a sender reads.
type getAccountOutput struct {
	DedicatedIpAutoWarmupEnabled bool
	EnforcementStatus            string
	ProductionAccessEnabled      bool
	SendQuota                    sendQuota
	SendingEnabled               bool
}

type sendQuota struct {
	Max24HourSend   float64
	MaxSendRate     float64
	SentLast24Hours float64
}

// account is the state of the simulated account, with the faults that tests inject. Server.mu guards it.
type account struct {
	settings Settings
	rules    []Rule
	tally    tally
	rate     rateLimit
	quota    rollingDay
	faults   map[string]Fault // by name; never changed
}

func (s *Server) getAccount(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	st := s.account.settings
	sent := s.account.quota.sum(s.cfg.Clock())
	s.ledger.accountCalls++
	s.mu.Unlock()

	switch {
	case st.Unavailable:
		writeFault(w, s.faults[faultUnavailable])
	case !isSigned(r):
		writeFault(w, s.faults[faultMissingToken])
	case st.GetAccount == accountNotFound:
		writeFault(w, s.faults[faultNotFoundHTML])
	case st.GetAccount == accountDenied:
		writeFault(w, s.faults[faultAccessDenied])
	default:
		writeJSON(w, http.StatusOK, accountOutput(st, sent))
	}
}

func accountOutput(st Settings, sent int) getAccountOutput {
	out := getAccountOutput{
		EnforcementStatus:       "HEALTHY",
		ProductionAccessEnabled: true,
		SendQuota:               sendQuota{Max24HourSend: float64(st.DailyQuota), MaxSendRate: st.MaxSendRate, SentLast24Hours: float64(sent)},
		SendingEnabled:          !st.Paused && !st.Suspended,
	}
	if st.DailyQuota == 0 {
		out.SendQuota.Max24HourSend = -1 // SES's value for unlimited
	}
	switch {
	case st.Suspended:
		out.EnforcementStatus = "SHUTDOWN"
	case st.Review:
		out.EnforcementStatus = "PROBATION"
	}
	return out
}

func (s *Server) unknownOperation(w http.ResponseWriter, _ *http.Request) {
	writeFault(w, Fault{Status: http.StatusNotFound, ErrorType: "UnknownOperationException", Message: "The simulator has only SendEmail and GetAccount."})
}
