package fsm

import "container/heap"

// deadlines is the expiry index: sessions by (deadline, id), the order in
// which they are removed. Changing a deadline is O(log n); what is not due is
// never looked at.
type deadlines struct {
	due []deadline
	at  []int32 // by session ref: its place in due + 1, 0 when absent
}

type deadline struct {
	ms      int64
	id      uint64
	session ref
}

// set files a session, or moves it to another deadline.
func (d *deadlines) set(session ref, id uint64, ms int64) {
	for int(session) >= len(d.at) {
		d.at = append(d.at, 0)
	}
	if i := d.at[session]; i != 0 {
		d.due[i-1].ms = ms
		heap.Fix((*deadlineHeap)(d), int(i-1))
		return
	}
	heap.Push((*deadlineHeap)(d), deadline{ms: ms, id: id, session: session})
}

// remove forgets a session that is filed.
func (d *deadlines) remove(session ref) {
	heap.Remove((*deadlineHeap)(d), int(d.at[session]-1))
}

// next answers the first session in order; ok is false when there is none.
func (d *deadlines) next() (first deadline, ok bool) {
	if len(d.due) == 0 {
		return deadline{}, false
	}
	return d.due[0], true
}

// deadlineHeap is deadlines as container/heap wants it.
type deadlineHeap deadlines

func (h *deadlineHeap) Len() int { return len(h.due) }

func (h *deadlineHeap) Less(i, j int) bool {
	if h.due[i].ms != h.due[j].ms {
		return h.due[i].ms < h.due[j].ms
	}
	return h.due[i].id < h.due[j].id
}

func (h *deadlineHeap) Swap(i, j int) {
	h.due[i], h.due[j] = h.due[j], h.due[i]
	h.at[h.due[i].session] = int32(i + 1)
	h.at[h.due[j].session] = int32(j + 1)
}

func (h *deadlineHeap) Push(x any) {
	h.due = append(h.due, x.(deadline))
	h.at[h.due[len(h.due)-1].session] = int32(len(h.due))
}

func (h *deadlineHeap) Pop() any {
	last := len(h.due) - 1
	gone := h.due[last]
	h.due = h.due[:last]
	h.at[gone.session] = 0
	return gone
}
