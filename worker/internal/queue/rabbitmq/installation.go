package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
)

// errForeign: the virtual host belongs to another installation.
var errForeign = errors.New("RABBITMQ_URL does not name a virtual host of this installation")

// markerExchange names the installation to which a virtual host belongs, by the argument alternate-exchange: the broker refuses a
// declaration with another one, and its error has both. Nothing is published to it. The argument begins with this name too,
// because a login needs permission to write to an alternate exchange.
const markerExchange = markerPrefix + "installation"

// markerPrefix is short, because RabbitMQ truncates its error, which contains both values, at 255 bytes.
const markerPrefix = "email-gateway."

// WithInstallation returns the same broker for the programs of one installation, whose id identify returns. The first
// connection stores the id in the virtual host as a marker. With the marker of another installation, connecting fails.
func (c Conn) WithInstallation(identify func(context.Context) (uuid.UUID, error)) Conn {
	c.identify = identify
	return c
}

// marker returns the declaration of the marker, or nothing if the installation is not checked.
func (r *reconnector) marker() ([]part, error) {
	if r.identify == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(r.life, callTime)
	defer cancel()
	id, err := r.identify(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the id of the installation: %w", err)
	}
	return []part{{"exchange " + markerExchange, func(c *amqp.Channel) error {
		err := c.ExchangeDeclare(markerExchange, "fanout", true, false, true, false, amqp.Table{"alternate-exchange": markerPrefix + id.String()})
		var refusal *amqp.Error
		if errors.As(err, &refusal) && refusal.Code == amqp.PreconditionFailed {
			// Without refusal in the chain, which would count as a mismatch.
			return fmt.Errorf("%w: %s. Give each installation a virtual host of its own; if the other one does not use this one any more, delete the exchange",
				errForeign, refusal.Reason)
		}
		return err
	}}}, nil
}
