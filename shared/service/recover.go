package service

import (
	"fmt"
	"runtime/debug"

	"email-gateway/shared/email"
)

// Recovered calls f and returns a panic as an error with its stack. A goroutine that works on input from outside calls
// it, because input that causes a panic comes again after a restart, and would end the process again.
func Recovered[T any](f func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %s\n%s", email.MaskText(fmt.Sprint(p)), debug.Stack())
		}
	}()
	return f()
}
