// Package bpf is the kernel half: the programs as an object file for any kernel, and the types it shares with user space.
// The C is beside it; README.md says which file is which hook. After a change, run
//
//	scripts/bootstrap bpf && go generate ./bpf
//
// and commit what it makes. The object holds no kernel's offsets: they are filled in when it is loaded (CO-RE).
package bpf

//go:generate go tool bpf2go -tags linux -target bpfel -cc clang -cflags "-O2 -g -Wall -Werror -mcpu=v3" -no-global-types -type plait_control -type plait_counters -type plait_policy -type plait_choice -type plait_prefix -type plait_latency -type plait_group -type plait_sample -type plait_flow -type plait_question -type plait_answer -output-stem plait Plait plait.bpf.c -- -I/usr/include
//go:generate go tool bpf2go -tags linux -target bpfel -cc clang -cflags "-O2 -g -Wall -Werror -mcpu=v3" -no-global-types -type plait_source -type plait_flow_key -type plait_flow_stats -type plait_flow_event -type plait_flow_news -type plait_flow_armed -type plait_transfer -type flow -type connection -output-stem flows Flows flows.bpf.c -- -I/usr/include
//go:generate go tool bpf2go -tags linux -target bpfel -cc clang -cflags "-O2 -g -Wall -Werror -mcpu=v3" -no-global-types -type plait_ack_route -type plait_ack_name -type plait_ack_lead -type plait_ack_native -output-stem acks Acks acks.bpf.c -- -I/usr/include

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Name of the congestion control, as in /proc/sys/net/ipv4/tcp_available_congestion_control.
const Name = "plait"

// Load returns the programs that fit the running kernel. cong_control has one form up to Linux 6.9 and another from 6.10 on,
// cwnd_event_tx_start exists from 7.1 on, do_tcp_sendpages up to 6.4, and registration by link from 6.4 on: linked says whether the caller must attach the map
// "plait", or whether loading it has registered it already.
func Load() (spec *ebpf.CollectionSpec, linked bool, err error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, false, fmt.Errorf("read the kernel's type information: %w", err)
	}
	var ops *btf.Struct
	if err := kernel.TypeByName("tcp_congestion_ops", &ops); err != nil {
		return nil, false, fmt.Errorf("find the kernel's tcp_congestion_ops: %w", err)
	}
	spec, err = fitting(ops)
	if err != nil {
		return nil, false, err
	}
	if !hasFunction(kernel, "do_tcp_sendpages") {
		delete(spec.Programs, "plait_sendpages")
	}
	linked = hasFunction(kernel, "bpf_struct_ops_link_create") // which makes BPF links to struct_ops maps
	if !linked {
		spec.Maps[Name].Flags = 0
	}
	return spec, linked, nil
}

// fitting returns the programs without those that a kernel with these operations has no place for.
func fitting(ops *btf.Struct) (*ebpf.CollectionSpec, error) {
	spec, err := LoadPlait()
	if err != nil {
		return nil, fmt.Errorf("read the compiled programs: %w", err)
	}
	control := operation(ops, "cong_control")
	if control == nil {
		return nil, fmt.Errorf("the kernel's tcp_congestion_ops has no cong_control")
	}
	if len(control.Params) == 4 {
		delete(spec.Programs, "plait_cong_control")
		spec.Programs["plait_cong_control_flag"].AttachTo = "tcp_congestion_ops:cong_control"
	} else {
		delete(spec.Programs, "plait_cong_control_flag")
	}
	if operation(ops, "cwnd_event_tx_start") == nil {
		delete(spec.Programs, "plait_cwnd_event_tx_start")
	}
	return spec, nil
}

// operation is the type of the function a member points to; nil if the kernel has no such member.
func operation(ops *btf.Struct, name string) *btf.FuncProto {
	for _, m := range ops.Members {
		if p, ok := m.Type.(*btf.Pointer); ok && m.Name == name {
			f, _ := p.Target.(*btf.FuncProto)
			return f
		}
	}
	return nil
}

// hasFunction says whether the kernel has a function of this name.
func hasFunction(kernel *btf.Spec, name string) bool {
	var f *btf.Func
	return kernel.TypeByName(name, &f) == nil
}

// The types shared with the C side (abi.h), under the names the rest of plait uses.
type (
	// Policy says how connections are treated; the kernel half has a table of them.
	Policy = PlaitPlaitPolicy
	// Choice is the daemon's for one socket.
	Choice = PlaitPlaitChoice
	// Control is what the daemon keeps current.
	Control = PlaitPlaitControl
	// Prefix is a destination and a policy: the key of the comparison.
	Prefix = PlaitPlaitPrefix
	// Group is one side of the comparison.
	Group = PlaitPlaitGroup
	// Latency is what is compared.
	Latency = PlaitPlaitLatency
	// Sample is one report about a socket.
	Sample = PlaitPlaitSample
	// Question names a connection.
	Question = PlaitPlaitQuestion
	// Answer is what the kernel half knows of it.
	Answer = PlaitPlaitAnswer
	// Flow is which connection a sample or an answer is about.
	Flow = PlaitPlaitFlow
	// Counters of the kernel half since it was loaded.
	Counters = PlaitPlaitCounters
	// Source is an address whose flows are watched.
	Source = FlowsPlaitSource
	// FlowKey is a TCP flow of this host.
	FlowKey = FlowsPlaitFlowKey
	// FlowStats is what is known of a flow.
	FlowStats = FlowsPlaitFlowStats
	// FlowEvent is said when a flow stalls, when it is heard again, when it sticks, and when it becomes slow.
	FlowEvent = FlowsPlaitFlowEvent
	// FlowNews is which of these.
	FlowNews = FlowsPlaitFlowNews
	// AckRoute is how a flow's ACKs are copied.
	AckRoute = AcksPlaitAckRoute
	// AckName is how a copied ACK tells which socket it is for.
	AckName = AcksPlaitAckName
	// AckLead is what copies of a flow's ACKs do.
	AckLead = AcksPlaitAckLead
	// AckNative is what the congestion control is told of a socket whose ACKs are copied.
	AckNative = AcksPlaitAckNative
	// Transfer is said when what an MPTCP connection had sent is acknowledged.
	Transfer = FlowsPlaitTransfer
)

// What a FlowEvent says.
const (
	FlowHeard   = FlowsPlaitFlowNewsPLAIT_FLOW_HEARD
	FlowStalled = FlowsPlaitFlowNewsPLAIT_FLOW_STALLED
	FlowStuck   = FlowsPlaitFlowNewsPLAIT_FLOW_STUCK
	FlowSlow    = FlowsPlaitFlowNewsPLAIT_FLOW_SLOW
)

// FlowRefused is the state of a flow whose timer the kernel had no memory for: nobody says when it stalls.
const FlowRefused = FlowsPlaitFlowArmedPLAIT_FLOW_REFUSED
