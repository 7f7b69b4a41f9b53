package agent

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"
)

// The guest talks to QEMU through four devices with I/O ports and nothing else. Port I/O is synchronous: it takes the same virtual
// time whatever the host does, which no interrupt-driven device does.
const (
	// fw_cfg, docs/specs/fw_cfg.rst of QEMU: select an item, then read its bytes one by one.
	portFwCfgSelector = 0x510
	portFwCfgData     = 0x511
	fwCfgFileDir      = 0x19
	// pvpanic, docs/specs/pvpanic.rst of QEMU: writing bit 0 stops the virtual machine within this instruction.
	portPvpanic  = 0x505
	pvpanicPause = 1
	// isa-debug-exit, hw/misc/debugexit.c of QEMU: writing v ends QEMU with exit status 2v + 1.
	portExit    = 0x501
	exitInOrder = 0x21
	// debugcon: every byte written goes to the host.
	portDebugcon = 0xe9
)

// ports owns an OS thread, because the right to use I/O ports belongs to a thread.
type ports struct {
	mu   sync.Mutex
	work chan func()
}

// openPorts asks the kernel for the ports (ioperm(2), needs CAP_SYS_RAWIO).
func openPorts() (*ports, error) {
	p := &ports{work: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		for _, r := range [][2]int{{portFwCfgSelector, 2}, {portPvpanic, 1}, {portExit, 1}, {portDebugcon, 1}} {
			if err := ioperm(r[0], r[1]); err != nil {
				ready <- fmt.Errorf("ioperm 0x%x: %w", r[0], err)
				return
			}
		}
		ready <- nil
		for f := range p.work {
			f()
		}
	}()
	return p, <-ready
}

func (p *ports) do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := make(chan struct{})
	p.work <- func() { f(); close(done) }
	<-done
}

// pauseLine tells the host that the machine is about to stop.
const pauseLine = "pausing"

// pause stops the virtual machine. It returns when the machine, or one resumed from its saved state, goes on.
func (p *ports) pause() {
	_, _ = p.Write([]byte(pauseLine + "\n"))
	p.do(func() { outByte(portPvpanic, pvpanicPause) })
}

// end ends the emulator, without a way through the kernel's shutdown, which waits for the power to go by computing. QEMU 7.2 is gone within the instruction;
// 10.0 ends when the virtual CPU halts.
func (p *ports) end() {
	p.do(func() { outByte(portExit, exitInOrder) })
	time.Sleep(math.MaxInt64)
}

// Write sends bytes to the host.
func (p *ports) Write(b []byte) (int, error) {
	if len(b) > 0 {
		p.do(func() { outBytes(portDebugcon, &b[0], len(b)) })
	}
	return len(b), nil
}

// readFile returns the fw_cfg file of that name as QEMU has it now.
func (p *ports) readFile(name string) (data []byte, err error) {
	p.do(func() {
		outWord(portFwCfgSelector, fwCfgFileDir)
		var count [4]byte
		inBytes(portFwCfgData, &count[0], len(count))
		for range binary.BigEndian.Uint32(count[:]) {
			var entry [64]byte // size u32, selector u16, reserved u16, name [56]
			inBytes(portFwCfgData, &entry[0], len(entry))
			if string(entry[8:8+len(name)]) != name || entry[8+len(name)] != 0 {
				continue
			}
			data = make([]byte, binary.BigEndian.Uint32(entry[:]))
			if len(data) > 0 {
				outWord(portFwCfgSelector, binary.BigEndian.Uint16(entry[4:]))
				inBytes(portFwCfgData, &data[0], len(data))
			}
			return
		}
		err = fmt.Errorf("read fw_cfg file %s: not there", name)
	})
	return data, err
}
