package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"email-gateway/scripts/sessim"
)

const eventsTopic = "arn:aws:sns:us-east-1:123456789012:ses-events"

// subscribeFeedback subscribes the api to the simulator's topic.
func (s *system) subscribeFeedback() {
	s.t.Helper()
	s.api.stop()
	s.api = startProgram(s.t, "api", s.env, map[string]string{"SES_EVENTS_TOPICS": eventsTopic, "SES_EVENTS_TRUSTED_URL": "http://" + s.sesAt})
	err := s.ses.Publish(sessim.Publication{URL: "http://" + s.api.addr + "/v1/ses/events", BaseURL: "http://" + s.sesAt, TopicARN: eventsTopic})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Through the three programs: SES's feedback is recorded in the timeline, resolves an unknown outcome without a
// second request, and prevents further mail to recipients who do not want it.
func TestFeedback(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"SES_CONFIGURATION_SET": "events", "SES_FEEDBACK_WINDOW": "5m"})
	s.subscribeFeedback()
	for to, want := range map[string]string{
		"ana+sim-reject@example.com":                 "SENT REJECTED",
		"ana@example.com":                            "SENT DELIVERED",
		"ana+sim-events-early@example.com":           "SENT DELIVERED",
		"ana+sim-events-twice@example.com":           "SENT DELIVERED",
		"ana+sim-cut-after@example.com":              "SENT DELIVERED", // no answer
		"ana+sim-truncated@example.com":              "SENT DELIVERED", // one that cannot be read
		"ana+sim-internal-failure-after@example.com": "SENT DELIVERED",
		"ana+sim-bounce@example.com":                 "SENT BOUNCED",
		"ana+sim-complaint@example.com":              "SENT DELIVERED COMPLAINED",
		"ana+sim-bounce-transient@example.com":       "SENT DELIVERY_DELAYED BOUNCED",
	} {
		id := s.send(to, nil)
		eventually(t, func() error {
			shown := s.email(id)
			delivery := strings.ToLower(want[strings.LastIndex(want, " ")+1:]) // the last event of each is its worst
			if got := strings.Join(shown.timeline(), " "); shown.Delivery != delivery || shown.DeliveryAt.IsZero() || shown.Status != "SENT" || !strings.HasSuffix(got, want) || shown.OutcomeUnknown {
				return fmt.Errorf("%s is %s, %s at %v: %s, events %+v", to, shown.Status, shown.Delivery, shown.DeliveryAt, got, s.ses.Events())
			}
			return nil
		})
		if n := len(s.ses.Requests(id)); n != 1 {
			t.Errorf("%s: %d requests", to, n)
		}
	}
	for to, want := range map[string]string{
		"ana+sim-bounce@example.com": "SUPPRESSED", "ana+sim-complaint@example.com": "SUPPRESSED", "ana+sim-bounce-transient@example.com": "SENT",
	} {
		s.await(s.send(to, nil), want)
	}
}
