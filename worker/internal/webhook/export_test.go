package webhook

import "time"

// SetTurns sets how many endpoints are served at the same time, and how long each while others may wait.
func (s *Service) SetTurns(most int, each time.Duration) { s.most, s.turnTime = most, each }
