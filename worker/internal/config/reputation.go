package config

import "email-gateway/shared/store/reputation"

// Reputation configures the reputation guard for companies without their own settings (`gatewayctl company
// reputation`). Thresholds are WARN,PAUSE,SENT,EVENTS: the rates in percent at which the guard warns and pauses, the
// minimum number of emails sent in the window, and the minimum number of these that bounced or drew a complaint. All
// dispatchers must have the same values: each dispatcher writes them to the database when it starts.
type Reputation struct {
	// ReputationGuard pauses the mailings of a company when too many of its emails bounce or draw
	// complaints. Without feedback from SES it does nothing.
	ReputationGuard bool `env:"REPUTATION_GUARD" envDefault:"true"`
	// Complaints1h are the thresholds of complaints about the emails of the last hour: WARN,PAUSE,SENT,EVENTS.
	Complaints1h reputation.Thresholds `env:"REPUTATION_COMPLAINTS_1H" envDefault:"0.5,1,200,5"`
	// Complaints24h are the thresholds of complaints about the emails of the last 24 hours.
	Complaints24h reputation.Thresholds `env:"REPUTATION_COMPLAINTS_24H" envDefault:"0.15,0.3,1000,10"`
	// Bounces1h are the thresholds of hard bounces of the emails of the last hour: WARN,PAUSE,SENT,EVENTS.
	Bounces1h reputation.Thresholds `env:"REPUTATION_BOUNCES_1H" envDefault:"5,10,200,20"`
	// Bounces24h are the thresholds of hard bounces of the emails of the last 24 hours.
	Bounces24h reputation.Thresholds `env:"REPUTATION_BOUNCES_24H" envDefault:"2.5,5,1000,50"`
}

// Rules returns the thresholds by rule.
func (r *Reputation) Rules() map[reputation.Rule]reputation.Thresholds {
	return map[reputation.Rule]reputation.Thresholds{
		reputation.Complaints1h: r.Complaints1h, reputation.Complaints24h: r.Complaints24h,
		reputation.Bounces1h: r.Bounces1h, reputation.Bounces24h: r.Bounces24h,
	}
}
