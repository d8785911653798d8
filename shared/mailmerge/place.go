package mailmerge

import (
	"strings"

	"email-gateway/shared/email"
)

// place says how a value is checked and written.
type place uint8

const (
	placeText      place = iota // plain text: as it is
	placeLine                   // subject: as it is, on one line
	placeMarkup                 // text and ordinary attributes of HTML
	placePreformed              // text right behind <pre>, which swallows a first line break
	placeAddress                // the beginning of an address
	placeListed                 // the beginning of an address in a list of them
	placeHost                   // in a host name
	placePath                   // in a path
	placeQuery                  // in a query or fragment
	placeMailbox                // in the address of mailto:
	placePhone                  // in the number of tel:
)

// check returns a code and a detail if a value is not allowed in the place.
func (p place) check(value string) (code, detail string) {
	if notText(value) >= 0 {
		return CodeValueNotText, "is not valid UTF-8 or contains a NUL character"
	}
	switch p {
	case placeLine:
		if email.HasControl(value) {
			return CodeValueControl, "must not contain line ends or other control characters"
		}
	case placeAddress, placeListed:
		if !isAddress(trimAddress(value)) {
			return CodeValueAddress, "must be an address that begins with https://, http://, mailto: or tel:"
		}
	case placeHost:
		if !isHost(value) {
			return CodeValueHost, "must be a host name or a part of one"
		}
	case placePath:
		// Browsers resolve these segments, even when percent-encoded.
		if value != "" && strings.Trim(value, ".") == "" {
			return CodeValuePath, "must not consist of dots only"
		}
	}
	return "", ""
}

// append writes a value that passed check.
func (p place) append(dst []byte, value string) []byte {
	switch p {
	case placeMarkup:
		return appendMarkup(dst, value)
	case placePreformed:
		return appendMarkup(append(dst, '\n'), value)
	case placeAddress:
		return appendMarkup(dst, trimAddress(value))
	case placeListed:
		return appendListed(dst, trimAddress(value))
	case placePath, placeQuery:
		return appendComponent(dst, value, "")
	case placeMailbox:
		return appendComponent(dst, value, "@")
	case placePhone:
		return appendComponent(dst, value, "+()")
	}
	return append(dst, value...)
}

// size is the number of bytes written by append.
func (p place) size(value string) int {
	switch p {
	case placeMarkup:
		return sizeMarkup(value)
	case placePreformed:
		return 1 + sizeMarkup(value)
	case placeAddress:
		return sizeMarkup(trimAddress(value))
	case placeListed:
		return sizeListed(trimAddress(value))
	case placePath, placeQuery:
		return sizeComponent(value, "")
	case placeMailbox:
		return sizeComponent(value, "@")
	case placePhone:
		return sizeComponent(value, "+()")
	}
	return len(value)
}

// least is a number of bytes that append writes at least. It reads only what append removes.
func (p place) least(value string) int {
	if p == placeAddress || p == placeListed {
		value = trimAddress(value)
	}
	return len(value)
}
