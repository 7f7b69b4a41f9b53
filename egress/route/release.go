package route

// Release lets packets of the exits' addresses take the main table's best path, as all others do: it takes away the rules that bind them to their exit.
// Everything else stays, for a process that goes on with it. It is for when nobody follows BGP any more: an exit may have withdrawn since. The rule behind,
// which says unreachable, goes first, so that there is a way at every moment.
func (k *Kernel) Release() error {
	have, err := k.readEnds()
	if err != nil {
		return err
	}
	var f failures
	q := &queue{k: k, f: &f}
	q.unwantedRules(have.rules, nil, true)
	q.unwantedRules(have.rules, nil, false)
	q.flush()
	return f.err()
}
