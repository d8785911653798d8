package maintenance

import "context"

// RescueTasks runs one round of the search for lost tasks.
func (r *Rescuer) RescueTasks(ctx context.Context) error { return r.rescueTasks(ctx) }
