package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"plait.dev/plait/lab/agent"
	"plait.dev/plait/lab/experiment"
	"plait.dev/plait/lab/result"
	"plait.dev/plait/lab/vm"
)

// Options of one run.
type Options struct {
	// Command is the command line to put into the result file.
	Command string
	// Part is which of several experiments this one is ("2 of 5"), for who watches; empty if it is alone.
	Part string
	// Captures is the directory for packet captures; empty is the current one.
	Captures string
	// Before is a result file of the same experiment whose runs are not run again; nil without.
	Before *result.File
	// Save, if set, is called once a minute with the cells that have finished so far, if there are new ones, so that a crash
	// loses little of a long run. Its error ends the run.
	Save func(*result.File) error
}

// saveEvery is the time between two calls of Options.Save: a long experiment's file is large, and written whole.
const saveEvery = time.Minute

// run is an experiment while it runs.
type run struct {
	lab      *Lab
	exp      *experiment.Experiment
	options  Options
	progress *progress
	bases    map[string]*base // by kernel
	cells    []experiment.Cell

	mu      sync.Mutex     // guards what follows, while cells run
	results []*result.Cell // nil where the cell has not finished
	unsaved bool           // a cell has finished since Save was called last
}

// Run runs every cell of an experiment and evaluates its bounds. If ctx is cancelled it returns the cells that have
// finished, without bounds, together with the cause.
func (l *Lab) Run(ctx context.Context, exp *experiment.Experiment, o Options) (*result.File, error) {
	r := &run{lab: l, exp: exp, options: o, cells: exp.Cells(), bases: map[string]*base{}}
	r.results = make([]*result.Cell, len(r.cells))
	lengths := make([]float64, len(r.cells))
	for i, c := range r.cells {
		lengths[i] = length(c.Spec)
	}
	name := exp.Spec.Name
	if o.Part != "" {
		name = fmt.Sprintf("experiment %s, %s", o.Part, name)
	}
	r.progress = newProgress(l.Terminal, name, lengths)
	defer r.progress.close()
	for _, c := range r.cells {
		if r.bases[c.Spec.Kernel] != nil {
			continue
		}
		b, err := l.Base(ctx, c.Spec.Kernel, r.progress.doing)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", exp.Spec.Name, err)
		}
		r.bases[c.Spec.Kernel] = b
	}
	if o.Before != nil {
		if err := r.resume(o.Before); err != nil {
			return nil, err
		}
	}
	r.progress.begin()
	err := r.all(ctx)
	f, fileErr := r.file()
	if err != nil && f != nil {
		err = fmt.Errorf("%s: %w; %d of %d runs have finished, the bounds are not evaluated", exp.Spec.Name, err, len(f.Cells), len(r.cells))
	}
	return f, errors.Join(err, fileErr)
}

// all runs the cells, so many at a time as there are jobs. An error other than a failed precondition ends them all.
func (r *run) all(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	next := make(chan int)
	var workers, saver sync.WaitGroup
	defer saver.Wait() // what the caller saves comes after it
	defer fail(nil)
	saver.Go(func() {
		if err := r.runSaving(ctx); err != nil {
			fail(err)
		}
	})
	for range min(r.lab.Jobs, len(r.cells)) {
		workers.Go(func() {
			for i := range next {
				if err := r.one(ctx, i); err != nil {
					fail(err)
				}
			}
		})
	}
	for i := range r.cells {
		if r.has(i) {
			r.progress.skip()
			continue
		}
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	if !slices.Contains(r.results, nil) {
		return nil // whoever ended it came too late
	}
	return context.Cause(ctx)
}

// one runs one cell and stores its result. A failed precondition is a result: the cell is invalid.
func (r *run) one(ctx context.Context, i int) error {
	c := &r.cells[i]
	out := &result.Cell{}
	err := r.machine(ctx, i, out)
	var invalid *Invalid
	var crash *vm.Crash
	switch {
	case errors.As(err, &invalid):
		*out = result.Cell{Invalid: invalid.Reason}
	case errors.As(err, &crash):
		*out = result.Cell{Invalid: crash.Error()}
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("run %d: %w", i+1, err)
	}
	out.Params, out.Variant, out.Seed = c.Params, c.Variant, c.Seed
	r.progress.finished(i, out)
	r.store(i, out)
	return nil
}

// has says whether the cell has finished, in this run or in the one it continues.
func (r *run) has(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[i] != nil
}

// store keeps a cell's result, to be saved.
func (r *run) store(i int, out *result.Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[i], r.unsaved = out, true
}

// runSaving saves what has finished, also when the cells that follow take long, until ctx ends or saving fails.
func (r *run) runSaving(ctx context.Context) error {
	if r.options.Save == nil {
		return nil
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := r.save(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// save saves the cells that have finished, if there are any since the last time. All of them are the caller's to save.
func (r *run) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unsaved || !slices.Contains(r.results, nil) {
		return nil
	}
	f, err := r.file()
	if err != nil {
		return err
	}
	r.unsaved = false
	return r.options.Save(f)
}

// machine resumes a machine for the cell and waits for its result.
func (r *run) machine(ctx context.Context, i int, out *result.Cell) error {
	c := &r.cells[i]
	job := &agent.Job{Spec: c.Spec, Seed: c.Seed}
	state, err := r.lab.ready(ctx, r.bases[c.Spec.Kernel], job, func(s string) { r.progress.cellDoing(i, s) })
	if err != nil {
		return err
	}
	input, err := json.Marshal(job)
	if err != nil {
		return err
	}
	got := false
	var problem error
	err = vm.Resume(ctx, state, input, vm.Options{Console: r.lab.Console}, func(line []byte) {
		var m agent.Message
		if err := json.Unmarshal(line, &m); err != nil {
			problem = errors.Join(problem, fmt.Errorf("read the guest's message: %w", err))
			return
		}
		switch {
		case m.AtS > 0:
			r.progress.cellAt(i, m.AtS)
		case m.Doing != "":
			r.progress.cellDoing(i, m.Doing)
		case m.Invalid != "":
			problem = &Invalid{m.Invalid}
		case m.File != nil:
			problem = errors.Join(problem, r.keep(i, m.File))
		case m.Cell != nil:
			data, err := agent.Expand(m.Cell)
			if err == nil {
				err = json.Unmarshal(data, out)
			}
			problem, got = errors.Join(problem, err), true
		}
	})
	if err := errors.Join(err, problem); err != nil {
		return err
	}
	if !got {
		return &vm.Crash{Reason: "it ended without a result"}
	}
	return nil
}

// keep writes a capture.
func (r *run) keep(i int, f *agent.File) error {
	data, err := agent.Expand(f.Data)
	if err != nil {
		return err
	}
	return result.Replace(filepath.Join(r.options.Captures, captureName(r.exp, r.cells[i], f.Name)), data)
}

// mostNamed is how long the parameters in a capture's name may be: a file's name has 255 bytes.
const mostNamed = 120

// captureName is of what the cell is, not of its place: with --resume, more seeds or values may come before it.
func captureName(e *experiment.Experiment, c experiment.Cell, file string) string {
	name, point := fmt.Sprintf("%s-%s-seed%d", e.Spec.Name, c.Variant, c.Seed), ""
	for _, axis := range e.Axes {
		for _, p := range axis.Names {
			point += fmt.Sprintf("-%s=%s", p, url.PathEscape(fmt.Sprint(c.Params[p])))
		}
	}
	if len(point) > mostNamed {
		point = "-" + digest([]byte(point))[:12]
	}
	return name + point + "-" + file
}

// ready returns the machine to resume for the job: one whose routers have converged if it has any, else the one that
// has just booted, for namespaces and links are made in less time than a machine is copied.
func (l *Lab) ready(ctx context.Context, b *base, job *agent.Job, doing func(string)) (vm.State, error) {
	now := time.Now()
	err := os.Chtimes(string(b.state), now, now) // other runs remove what was not used for long
	if errors.Is(err, fs.ErrNotExist) {
		err = l.bootAgain(ctx, b, job.Spec.Kernel, doing)
	}
	if err != nil {
		return "", err
	}
	if len(job.Spec.Routers) == 0 {
		return b.state, nil
	}
	n, err := agent.NewNetwork(job.Spec)
	if err != nil {
		return "", err
	}
	return l.prepared(ctx, b, n, doing)
}

// bootAgain makes a machine anew that was removed from the cache while a cell ran for long.
func (l *Lab) bootAgain(ctx context.Context, b *base, kernel string, doing func(string)) error {
	now, err := l.Base(ctx, kernel, doing)
	if err == nil && now.state != b.state {
		err = fmt.Errorf("boot the guest again, since %s was removed from the cache: image or plait is another by now; run the experiment again", b.state)
	}
	return err
}

// file is the result file of the cells that have finished.
func (r *run) file() (*result.File, error) {
	first := r.cells[0].Spec
	about, err := describe(r.exp, first)
	if err != nil {
		return nil, err
	}
	f := &result.File{Format: result.Format, Experiment: about, Provenance: result.Provenance{
		Command: r.options.Command, Plait: r.lab.Version, QEMU: r.bases[first.Kernel].QEMU, Recordings: r.exp.Recordings(), ClockBase: vm.ClockBase,
	}}
	var kernels, images []string
	for _, generation := range slices.Sorted(maps.Keys(r.bases)) {
		kernels, images = append(kernels, r.bases[generation].Kernel), append(images, r.bases[generation].Digest)
	}
	f.Provenance.Kernel, f.Provenance.Image = strings.Join(kernels, ", "), strings.Join(images, ", ")
	for s := range r.exp.Seeds {
		f.Provenance.Seeds = append(f.Provenance.Seeds, s+1)
	}
	for _, c := range r.results {
		if c != nil {
			f.Cells = append(f.Cells, *c)
		}
	}
	if len(f.Cells) < len(r.results) {
		f.Incomplete = fmt.Sprintf("%d of %d", len(f.Cells), len(r.results))
		return f, nil
	}
	f.Bounds, f.Paper = r.exp.Evaluate(f.Cells)
	return f, nil
}

// Status is the exit status a result file stands for.
func Status(f *result.File) int {
	for _, c := range f.Cells {
		if c.Invalid != "" {
			return ExitInvalid
		}
	}
	for _, b := range f.Bounds {
		if !b.OK {
			return ExitBound
		}
	}
	return ExitOK
}
