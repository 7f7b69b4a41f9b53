package stripe

// queue is first in, first out, with a look at every element.
type queue[T any] struct {
	items []T
	head  int // items before it are gone
}

func (q *queue[T]) len() int    { return len(q.items) - q.head }
func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }
func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

// pop removes the first element. The memory behind it is used again when half of it is free.
func (q *queue[T]) pop() T {
	item := q.items[q.head]
	clear(q.items[q.head : q.head+1])
	q.head++
	if q.head*2 >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return item
}
