package schedule

// gpipe is all forwards, then all backwards.
func (t *Table) gpipe(int) []Action {
	var list []Action
	for _, k := range []Kind{F, B} {
		for m := range t.Micros {
			list = append(list, Action{Kind: k, Micro: m})
		}
	}
	return list
}

// oneForward is PipeDream-Flush: the forwards that fill the pipeline behind the stage, then one forward and one backward in
// turn, then the backwards that are left.
func (t *Table) oneForward(stage int) []Action {
	fill := min(t.Stages-1-stage, t.Micros)
	var list []Action
	for m := range t.Micros + fill {
		if m < t.Micros {
			list = append(list, Action{Kind: F, Micro: m})
		}
		if m >= fill {
			list = append(list, Action{Kind: B, Micro: m - fill})
		}
	}
	return list
}

// interleaved is oneForward over chunks: Stages micro-batches go through chunk 0, then through chunk 1, … then the next
// Stages micro-batches; backwards likewise, from the last chunk on.
func (t *Table) interleaved(stage int) []Action {
	n := t.Chunks * t.Micros
	at := func(k int) (chunk, micro int) {
		return k % t.Parts() / t.Stages, k/t.Parts()*t.Stages + k%t.Stages
	}
	fill := min(2*(t.Stages-1-stage)+(t.Chunks-1)*t.Stages, n)
	var list []Action
	for k := range n + fill {
		if k < n {
			c, m := at(k)
			list = append(list, Action{Kind: F, Chunk: c, Micro: m})
		}
		if k >= fill {
			c, m := at(k - fill)
			list = append(list, Action{Kind: B, Chunk: t.Chunks - 1 - c, Micro: m})
		}
	}
	return list
}

// zeroBubble is ZB-H1: as oneForward, and the weight gradients of a micro-batch come as many backwards later as there are
// stages before this one, so that every stage holds as many micro-batches as the first.
func (t *Table) zeroBubble(stage int) []Action {
	var list []Action
	weights := 0
	for _, a := range t.oneForward(stage) {
		list = append(list, a)
		if a.Kind == B && a.Micro >= stage {
			list = append(list, Action{Kind: W, Micro: weights})
			weights++
		}
	}
	for ; weights < t.Micros; weights++ {
		list = append(list, Action{Kind: W, Micro: weights})
	}
	return list
}

// How long the rules of varuna take forwards and backwards to be.
const forwardTime, backwardTime = 1, 2

// varuna runs the rules: of all actions that could come next, the one that can start first does, a backward before a forward
// of the same stage.
func (t *Table) varuna() {
	const never = int(^uint(0) >> 1)
	type stage struct {
		free, forwards, backwards int   // when it is free, and what it has done
		input, grad               []int // when each micro-batch's input and gradient are there
	}
	st := make([]stage, t.Stages)
	for i := range st {
		st[i].input, st[i].grad = make([]int, t.Micros), make([]int, t.Micros)
		for m := range t.Micros {
			st[i].grad[m] = never
			if i > 0 {
				st[i].input[m] = never
			}
		}
	}
	t.ranks = make([][]Action, t.Stages)
	for range 2 * t.Stages * t.Micros {
		who, start, kind := 0, never, F
		for i := range st {
			s := &st[i]
			if m := s.backwards; m < t.Micros && max(s.free, s.grad[m]) < start {
				who, start, kind = i, max(s.free, s.grad[m]), B
			}
			if m := s.forwards; m < t.Micros && max(s.free, s.input[m]) < start {
				who, start, kind = i, max(s.free, s.input[m]), F
			}
		}
		s := &st[who]
		if kind == B {
			s.free = start + backwardTime
			if who > 0 {
				st[who-1].grad[s.backwards] = s.free
			}
			t.ranks[who] = append(t.ranks[who], Action{Kind: B, Micro: s.backwards})
			s.backwards++
			continue
		}
		s.free = start + forwardTime
		if who+1 < t.Stages {
			st[who+1].input[s.forwards] = s.free
		} else {
			s.grad[s.forwards] = s.free // the loss is here
		}
		t.ranks[who] = append(t.ranks[who], Action{Kind: F, Micro: s.forwards})
		s.forwards++
	}
}
