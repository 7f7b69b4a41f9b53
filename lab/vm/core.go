package vm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// machines started by this process.
var machines atomic.Int64

// claimCore finds a core that no machine of any process of plait is on, as long as there is one. Each machine is kept on one: the emulator's
// two threads wait for each other all the time, and waking another core takes longer than most of what they do. Two machines on one core
// starve each other, as their threads have a real-time priority. The claim is a name in the abstract socket namespace that begins
// with claims and ends with the process; machines in another network namespace do not see it. core is -1 if this process may use only one.
func claimCore(claims string) (core int, free func()) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil || may.Count() < 2 {
		return -1, func() {}
	}
	var cores []int
	for cpu := 0; len(cores) < may.Count(); cpu++ {
		if may.IsSet(cpu) {
			cores = append(cores, cpu)
		}
	}
	first := os.Getpid() + int(machines.Add(1))
	for i := range cores {
		core = cores[(first+i)%len(cores)]
		claim, err := net.ListenPacket("unixgram", fmt.Sprint(claims, core))
		if err == nil {
			return core, func() { claim.Close() }
		}
	}
	return cores[first%len(cores)], func() {}
}

// startOn starts a program on a core, or on any if that is -1. The program has SIGINT blocked: between its fork and the process group of its
// own it would otherwise die of the terminal's Ctrl-C, and its end be seen before the signal that explains it.
func startOn(core int, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mask, before unix.Sigset_t
	mask.Val[0] = 1 << (unix.SIGINT - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, &before); err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	if core < 0 {
		return cmd.Start()
	}
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	return errors.Join(cmd.Start(), unix.SchedSetaffinity(0, &all))
}
