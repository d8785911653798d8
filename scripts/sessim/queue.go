package sessim

// queue is a first-in-first-out list. Its memory grows with its length, so that a large limit costs
// nothing while the queue is short.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

// pop removes the oldest item; the queue must not be empty.
func (q *queue[T]) pop() T {
	var zero T
	item := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head > len(q.items)/2 { // copying at most once per item keeps this O(1)
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return item
}

// all returns the items, oldest first, valid until the next push or pop.
func (q *queue[T]) all() []T { return q.items[q.head:] }
