package audit

import "strings"

// Actor is the requester of a change, as rows and timelines record it.
type Actor struct {
	By   string // the program: ByAPI or ByOperator
	Name string // the key's id for ByAPI, the login for ByOperator
}

// The values of Actor.By.
const (
	ByAPI      = "api"
	ByOperator = "gatewayctl"
)

// String returns the form in which columns store an actor.
func (a Actor) String() string {
	if a.Name == "" {
		return a.By
	}
	return a.By + ":" + a.Name
}

// ParseActor parses the result of String.
func ParseActor(text string) Actor {
	by, name, _ := strings.Cut(text, ":")
	return Actor{By: by, Name: name}
}
