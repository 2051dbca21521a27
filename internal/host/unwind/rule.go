package unwind

import "bytes"

// A base is what the frame's address counts from.
type base uint8

const (
	baseUnknown base = iota
	baseSP
	baseFP
)

// A rule says where the caller's registers are when a function is stopped at one place. The frame's address (CFA) is
// the caller's stack pointer.
type rule struct {
	base   base
	offset int64 // to the base
	loaded bool  // the address is the value stored at the sum, plus:
	added  int64
	stub   byte // of a linkage table: from this 16th of its code on one more word is on the stack; 0: no stub
	ra, fp saved
	signal bool
}

// saved says where a register of the caller is.
type saved struct {
	how howSaved
	at  int64 // for savedAt: offset from the frame's address
}

type howSaved uint8

const (
	savedNot     howSaved = iota // it still has its value
	savedAt                      // on the stack
	savedLost                    // nowhere: for the return address, there is no caller
	savedUnknown                 // in a way that perfdoctor does not follow
)

// maxStates bounds the stack of remembered states: compilers go one deep.
const maxStates = 16

// A machine runs the instructions of .eh_frame (DWARF 5, 6.4.2 and 7.24), up to an address.
type machine struct {
	names    registerNames
	common   *common
	at, pc   uint64
	row      rule
	initial  rule // as the common part leaves it
	states   []rule
	failed   bool // an instruction is not known
	finished bool // the address is reached
}

// operands has the operands of each instruction: u and s are LEB128 without and with a sign, b is a block, a digit is
// a number of so many bytes, p an address.
var operands = map[byte]string{
	opNop: "", opSetLoc: "p", opAdvance1: "1", opAdvance2: "2", opAdvance4: "4", opOffset: "uu", opRestore: "u",
	opUndefined: "u", opSame: "u", opRegister: "uu", opRemember: "", opRecall: "", opCFA: "uu", opCFARegister: "u",
	opCFAOffset: "u", opCFAExpression: "b", opExpression: "ub", opOffsetSigned: "us", opCFASigned: "us",
	opCFAOffsetSigned: "s", opValue: "uu", opValueSigned: "us", opValueExpression: "ub", opSign: "", opArguments: "u",
}

// Instructions by DW_CFA_*. The first three have an operand in their low six bits.
const (
	opAdvance         = 0x40
	opOffsetShort     = 0x80
	opRestoreShort    = 0xc0
	opNop             = 0x00
	opSetLoc          = 0x01
	opAdvance1        = 0x02
	opAdvance2        = 0x03
	opAdvance4        = 0x04
	opOffset          = 0x05
	opRestore         = 0x06
	opUndefined       = 0x07
	opSame            = 0x08
	opRegister        = 0x09
	opRemember        = 0x0a
	opRecall          = 0x0b
	opCFA             = 0x0c
	opCFARegister     = 0x0d
	opCFAOffset       = 0x0e
	opCFAExpression   = 0x0f
	opExpression      = 0x10
	opOffsetSigned    = 0x11
	opCFASigned       = 0x12
	opCFAOffsetSigned = 0x13
	opValue           = 0x14
	opValueSigned     = 0x15
	opValueExpression = 0x16
	opSign            = 0x2d // DW_CFA_AARCH64_negate_ra_state: signs are cut off in any case
	opArguments       = 0x2e // DW_CFA_GNU_args_size
)

func (m *machine) run(code cursor) {
	for len(code.rest) > 0 && !m.failed && !m.finished {
		m.step(&code)
		m.failed = m.failed || code.bad
	}
}

func (m *machine) step(code *cursor) {
	op := byte(code.number(1))
	low := uint64(op & 0x3f)
	switch op & 0xc0 {
	case opAdvance:
		m.advance(low * m.common.codeUnit)
		return
	case opOffsetShort:
		m.save(low, saved{savedAt, int64(code.unsigned()) * m.common.dataUnit})
		return
	case opRestoreShort:
		m.restore(low)
		return
	}
	kinds, known := operands[op]
	m.failed = m.failed || !known
	var n [2]uint64
	var block []byte
	for i, kind := range kinds {
		switch kind {
		case 'u':
			n[i] = code.unsigned()
		case 's':
			n[i] = uint64(code.signed())
		case 'b':
			block = code.block()
		case 'p':
			n[i] = code.pointer(m.common.pointers)
		default:
			n[i] = code.number(uint64(kind - '0'))
		}
	}
	if !code.bad {
		m.do(op, n[0], int64(n[1]), block)
	}
}

// do runs an instruction with one operand, or a register and a second one.
func (m *machine) do(op byte, n uint64, second int64, block []byte) {
	unit := m.common.dataUnit
	switch op {
	case opSetLoc:
		m.advance(n - m.at)
	case opAdvance1, opAdvance2, opAdvance4:
		m.advance(n * m.common.codeUnit)
	case opOffset, opOffsetSigned:
		m.save(n, saved{savedAt, second * unit})
	case opRestore:
		m.restore(n)
	case opUndefined:
		m.save(n, saved{how: savedLost})
	case opSame:
		m.save(n, saved{how: savedNot})
	case opRegister, opExpression, opValue, opValueSigned, opValueExpression:
		m.save(n, saved{how: savedUnknown})
	case opRemember, opRecall:
		m.remember(op == opRecall)
	case opCFA:
		m.frame(m.baseOf(n), second)
	case opCFASigned:
		m.frame(m.baseOf(n), second*unit)
	case opCFARegister:
		m.frame(m.baseOf(n), m.row.offset)
	case opCFAOffset:
		m.frame(m.row.base, int64(n))
	case opCFAOffsetSigned:
		m.frame(m.row.base, int64(n)*unit)
	case opCFAExpression:
		m.expression(block)
	}
}

func (m *machine) advance(by uint64) {
	if by > m.pc-m.at {
		m.finished = true
		return
	}
	m.at += by
}

func (m *machine) save(register uint64, s saved) {
	switch register {
	case m.names.ra:
		m.row.ra = s
	case m.names.fp:
		m.row.fp = s
	}
}

func (m *machine) restore(register uint64) {
	switch register {
	case m.names.ra:
		m.row.ra = m.initial.ra
	case m.names.fp:
		m.row.fp = m.initial.fp
	}
}

// remember keeps a state, or goes back to the last kept one.
func (m *machine) remember(back bool) {
	last := len(m.states) - 1
	switch {
	case back && last < 0, !back && last+1 == maxStates:
		m.failed = true
	case back:
		m.row, m.states = m.states[last], m.states[:last]
	default:
		m.states = append(m.states, m.row)
	}
}

func (m *machine) baseOf(register uint64) base {
	switch register {
	case m.names.sp:
		return baseSP
	case m.names.fp:
		return baseFP
	}
	return baseUnknown
}

func (m *machine) frame(b base, offset int64) {
	m.row.base, m.row.offset = b, offset
	m.row.loaded, m.row.added, m.row.stub = false, 0, 0
}

// The operations of the expressions that perfdoctor follows (DWARF 5, 7.7.1).
const (
	exprDeref  = 0x06
	exprPlus   = 0x23 // DW_OP_plus_uconst
	exprLit0   = 0x30
	exprLit31  = 0x4f
	exprBreg0  = 0x70 // a register and a signed number
	exprBreg31 = 0x8f
)

// stubHead and stubTail stand around a small number in the expression of a linkage table on amd64: rsp+8, and 8 more
// where the low four bits of rip are at least that number (elf_x86_64_eh_frame_plt in binutils, bfd/elf64-x86-64.c).
var (
	stubHead = []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a}
	stubTail = []byte{0x2a, 0x33, 0x24, 0x22}
)

// expression follows two kinds of expression: that of a linkage table, and a word on the stack plus a number, where
// assembler code and code that aligns its stack keep the caller's stack pointer. After any other the frame is not
// known.
func (m *machine) expression(code []byte) {
	m.frame(baseUnknown, 0)
	head, ok := bytes.CutPrefix(code, stubHead)
	if number, tail := bytes.CutSuffix(head, stubTail); ok && tail && len(number) == 1 && number[0] > exprLit0 &&
		number[0] <= exprLit31 {
		m.frame(baseSP, 8)
		m.row.stub = number[0] - exprLit0
		return
	}
	c := cursor{rest: code}
	register := byte(c.number(1))
	if register < exprBreg0 || register > exprBreg31 {
		return
	}
	offset, loaded, added := c.signed(), c.number(1) == exprDeref, int64(0)
	if len(c.rest) > 0 {
		loaded = loaded && c.number(1) == exprPlus
		added = int64(c.unsigned())
	}
	if loaded && !c.bad && len(c.rest) == 0 {
		m.frame(m.baseOf(uint64(register-exprBreg0)), offset)
		m.row.loaded, m.row.added = true, added
	}
}
