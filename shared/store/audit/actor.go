package audit

import "strings"

// Actor is the requester of a change, as rows and timelines record it.
type Actor struct {
	By   string // the program: ByAPI or ByOperator
	Name string // of ByAPI the key's id, of ByOperator the login
}

// The values of Actor.By.
const (
	ByAPI      = "api"
	ByOperator = "gatewayctl"
)

// String is the form in which columns hold an actor.
func (a Actor) String() string {
	if a.Name == "" {
		return a.By
	}
	return a.By + ":" + a.Name
}

// ParseActor reads what String has made.
func ParseActor(text string) Actor {
	by, name, _ := strings.Cut(text, ":")
	return Actor{By: by, Name: name}
}
