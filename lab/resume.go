package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"plait.dev/plait/lab/result"
)

// ErrConditions is the error of a result file that cannot be continued.
var ErrConditions = errors.New("so its runs cannot be joined with new ones; name another file, or leave out --resume to run everything")

// conditions are what a run's numbers depend on besides its parameters, variant and seed: name and value of each.
func conditions(f *result.File) [][2]string {
	p := f.Provenance
	return [][2]string{{"experiment file or --set", f.Experiment.Source}, {"guest image or build of plait", p.Image}, {"kernel", p.Kernel},
		{"emulator", p.QEMU}, {"clock", p.ClockBase}}
}

// key tells the runs of one experiment apart. Parameters of a file that was read and of an experiment are of different Go
// types, and equal as JSON.
func key(c *result.Cell) (string, error) {
	text, err := json.Marshal([]any{c.Params, c.Variant, c.Seed})
	return string(text), err
}

// resume takes over the valid runs of a result file, which must be of this experiment under the same conditions. It may have fewer
// seeds and parameters, but no others: they would be lost.
func (r *run) resume(before *result.File) error {
	now, err := r.file()
	if err != nil {
		return err
	}
	was := conditions(before)
	for _, is := range now.Provenance.Recordings {
		if slices.ContainsFunc(before.Provenance.Recordings, func(was result.Recording) bool { return was.File == is.File && was.SHA256 != is.SHA256 }) {
			return fmt.Errorf("resume %s: the result file was made with another recording %s, %w", r.exp.Spec.Name, is.File, ErrConditions)
		}
	}
	for i, is := range conditions(now) {
		if is != was[i] {
			return fmt.Errorf("resume %s: the result file was made with another %s, %w", r.exp.Spec.Name, is[0], ErrConditions)
		}
	}
	finished := map[string]*result.Cell{}
	for i := range before.Cells {
		c := &before.Cells[i]
		k, err := key(c)
		if err != nil {
			return err
		}
		if c.Invalid == "" {
			finished[k] = c
		}
	}
	for i, c := range r.cells {
		k, err := key(&result.Cell{Params: c.Params, Variant: c.Variant, Seed: c.Seed})
		if err != nil {
			return err
		}
		r.results[i] = finished[k]
		delete(finished, k)
	}
	if len(finished) > 0 {
		return fmt.Errorf("resume %s: the result file has runs that this command line does not ask for (%d), %w", r.exp.Spec.Name, len(finished), ErrConditions)
	}
	return nil
}
